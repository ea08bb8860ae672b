"""`hotrow bench gpu`: a sentence without a GPU, checks in the interpreter, and checks that fail on wrong results."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.bench.gpu import kernels, store, workload
from hotrow.bench.gpu.__main__ import main
from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.parts import PARTS
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.record import Record
from hotrow.bench.gpu.run import run_part
from hotrow.cli import app
from hotrow.kernels.update import update_rows
from hotrow.store.hbm import HbmTier

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of numpy, for idle lanes in the interpreter
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # of torch.compile, which reads it
]


@no_gpu
def test_without_a_gpu_a_sentence_says_so_and_the_exit_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "error: no CUDA device: run this on a machine with a GPU, or check results by --quick --interpret\n"
    )
    assert CliRunner().invoke(app, ["bench", "gpu"]).exit_code != 0


@no_gpu
def test_results_of_every_part_are_checked_in_the_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--interpret"]) == 0
    assert capsys.readouterr().out == "".join(f"{part}: checked\n" for part in PARTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interpret"], "--interpret: the interpreter is too slow for full sizes, add --quick"),
        (["--quick", "--interpret", "--part", "x"], f"--part x: must be one of {', '.join(PARTS)}"),
        (["--json", "missing/gpu.json"], "--json missing/gpu.json: must be a file in a folder that exists"),
    ],
)
def test_options_that_cannot_be_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_wrong_result_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "pool", lambda values, slots: values[slots] + 1e-6)
    with pytest.raises(AssertionError, match="not equal"):
        kernels.check(DEVICE, GpuPlan().quick())


class Failing:
    """A part whose check passes, and that fails after its first figure."""

    def check(self, device: torch.device, plan: GpuPlan) -> None:
        if device.type == "cpu" and plan.rounds == 99:
            raise AssertionError("wrong result")

    def measure(self, clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
        yield "first_bkeys", 2.0
        raise RuntimeError("CUDA error: out of memory")


class Passing(Failing):
    def measure(self, clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
        yield "other_bkeys", 3.0


@pytest.mark.parametrize(("rounds", "figures"), [(1, {"first_bkeys": 2.0}), (99, None)], ids=["measure", "check"])
def test_a_part_that_fails_leaves_its_figures_and_those_of_the_others(
    rounds: int, figures: dict[str, float] | None, tmp_path: Path
) -> None:
    device, file = torch.device("cpu"), tmp_path / "gpu.json"
    record = Record({"commit": "abc"}, file)
    for name, part, plan in (("one", Failing(), GpuPlan(rounds=rounds)), ("two", Passing(), GpuPlan())):
        run_part(name, part, device, plan, WallClock(device, plan), record)
        written = json.loads(file.read_text())  # after each part
        assert written == {"commit": "abc", "parts": record.parts, "figures": record.figures}
    message = "RuntimeError: CUDA error: out of memory" if rounds == 1 else "AssertionError: wrong result"
    assert record.parts == {"one": f"failed: {message}", "two": "measured"}
    assert record.figures == ({} if figures is None else {"one": figures}) | {"two": {"other_bkeys": 3.0}}
    assert record.exit_code == 1


@no_gpu
def test_a_failed_part_is_in_the_file_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("values differ")

    monkeypatch.setattr(kernels, "check", fail)
    file = tmp_path / "gpu.json"
    options = ["--quick", "--interpret", "--part", "kernels", "--part", "interactions", "--json", str(file)]
    assert main(options) == 1
    assert capsys.readouterr().out == "kernels: failed: AssertionError: values differ\ninteractions: checked\n"
    assert json.loads(file.read_text())["parts"]["interactions"] == "checked"
    assert CliRunner().invoke(app, ["bench", "gpu", *options]).exit_code == 1


def test_the_interpreter_is_not_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main([]) == 2
    assert "error: TRITON_INTERPRET is set" in capsys.readouterr().err


def test_the_help_names_every_part() -> None:
    shown = CliRunner().invoke(app, ["bench", "gpu", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert [part for part in PARTS if part not in shown] == []


def test_gradients_that_cancel_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sum is a rounding error, whose sign depends on the order."""
    plan = GpuPlan().quick()
    given = store._gradients(DEVICE, plan)
    _, which = torch.unique(workload.zipf_ranks(DEVICE, plan)[0], return_inverse=True)
    sums = torch.zeros_like(given, dtype=torch.float64).index_add_(0, which, given.double())
    last = {int(key): place for place, key in enumerate(which)}
    for key, place in last.items():
        given[place] -= sums[key].float()
    monkeypatch.setattr(store, "_gradients", lambda *_: given)
    store.check(DEVICE, plan)


def test_a_gradient_that_is_left_out_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = HbmTier.apply

    def without_the_last(tier: HbmTier, batch: Any, gradients: torch.Tensor, *rest: Any, **settings: Any) -> Any:
        return apply(tier, batch, torch.cat([gradients[:-1], 0 * gradients[-1:]]), *rest, **settings)

    monkeypatch.setattr(HbmTier, "apply", without_the_last)
    with pytest.raises(AssertionError, match="not close"):
        store.check(DEVICE, GpuPlan().quick())


def test_a_check_of_evictions_that_compares_no_row_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "isin", lambda keys, _: torch.zeros_like(keys, dtype=torch.bool))
    with pytest.raises(AssertionError, match="nothing was compared"):
        store.check(DEVICE, GpuPlan().quick())


def test_the_update_in_torch_is_that_of_the_kernel() -> None:
    random = torch.Generator(DEVICE).manual_seed(3)
    values, state, gradients = torch.rand(3, 9, 4, device=DEVICE, generator=random)
    own, slots = (values.clone(), state.clone()), torch.tensor([4, 0, 8], device=DEVICE)
    kernels.torch_adagrad(values, state, slots, gradients[:3])
    update_rows(kernels.RULE, *own, slots, gradients[:3])
    torch.testing.assert_close((values, state), own)


def test_ids_are_zipf_and_keys_are_distinct() -> None:
    plan = GpuPlan(ids=50_000, distinct=100, skew=1.05, batches=2)
    ranks = workload.zipf_ranks(torch.device("cpu"), plan)
    assert ranks.shape == (2, 50_000)
    weights = torch.arange(1, 101, dtype=torch.float64) ** -1.05
    share = torch.bincount(ranks.flatten(), minlength=100) / ranks.numel()
    torch.testing.assert_close(share.double(), weights / weights.sum(), atol=0.005, rtol=0)
    assert len(set(workload.keys_of(torch.arange(1_000)).tolist())) == 1_000


MAY_BE_ZERO = ("_write_share", "_krows_down", "_krows_up", "_hidden_share")  # of a few batches


class WallClock(EventClock):
    """Calls once, and takes a second for it: names and arithmetic of figures, without a GPU."""

    def seconds(self, call: Callable[[int], object], rounds: int | None = None) -> float:
        call(0)
        return 1.0


@pytest.mark.parametrize("part", PARTS)
def test_every_figure_of_a_part_is_a_positive_rate(part: str) -> None:
    plan = GpuPlan().quick()
    figures = dict(PARTS[part].measure(WallClock(torch.device("cpu"), plan), plan))
    assert json.loads(json.dumps(figures)) == figures
    signed = [name for name, value in figures.items() if value <= 0]
    assert all("_change" in name or name.endswith(MAY_BE_ZERO) for name in signed), figures
    if part == "tiered":
        shares = [figures[f"tiered_{stage}_share"] for stage in ("begin", "prefetch", "train")]
        assert sum(shares) == pytest.approx(1)
        assert figures["tiered_vs_hbm"] == pytest.approx(figures["tiered_msamples"] / figures["tiered_hbm_msamples"])
        assert 0 < figures["tiered_hbm_share"] <= plan.tiered_share
    if part == "kernels":
        assert figures["unique_bkeys"] == plan.ids / 1e9
        assert figures["copy_gb_per_s"] == 2 * plan.copy_bytes / 1e9
        assert figures["update_ceiling_share"] == pytest.approx(
            figures["update_brows"] * (5 * 4 * plan.dim + 8) / figures["copy_gb_per_s"]
        )
