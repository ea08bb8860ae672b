"""A run whose cluster is broken ends at once: nobody who is gone is asked, the page says so, the checkpoint stays."""

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hotrow import checkpoint
from hotrow.checkpoint.place import Place
from hotrow.cli.train import after_an_interrupt, stopped
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.run import Run, load_config
from hotrow.run.recorder import RunRecorder
from hotrow.run.resume import Origin
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.runtime.losses import RoleLost
from hotrow.trainer import Progress, Trainer
from hotrow.transport.errors import PeerLost
from hotrow.types import RoleId
from small_run import CONFIG, write_data

SILENT = PeerLost("shard 1", "tcp://127.0.0.1:9", 60.0, "nothing was heard for 60 s")
LOST = {"trainer 0": "it was killed"}


def broken(run: Run, fault: HotrowError) -> list[str]:
    """A run with a fault in its second epoch; what the command says to it."""
    told = []
    with suppress(type(fault)), run:
        for report in run:
            if isinstance(report, Progress) and report.epoch == 1:
                told.append(stopped(run, fault, "AGAIN"))
                raise fault
    return told


def lose(monkeypatch: pytest.MonkeyPatch, lost: dict[str, str]) -> None:
    facts = ClusterFacts("off", None, {}, {RoleId.parse(role): reason for role, reason in lost.items()})
    monkeypatch.setattr(Trainer, "cluster", property(lambda _: facts))


@pytest.mark.parametrize(
    ("fault", "lost", "reason"),
    [
        (RoleLost("trainer 0 is gone: it was killed"), LOST, "trainer 0 is gone: it was killed"),
        (SILENT, {}, str(SILENT)),
    ],
    ids=["lost", "silent"],
)
@pytest.mark.parametrize("saved", [True, False])
def test_nothing_is_saved_and_the_page_says_why(
    fault: HotrowError, lost: dict[str, str], reason: str, saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG + ("checkpoint_every = 1\n" if saved else "")
    run = Run(load_config(write_data(tmp_path, text), [f"run.folder={tmp_path}"]))
    lose(monkeypatch, lost)
    monkeypatch.setattr(
        RunRecorder, "_write_tables", lambda _: None if not run._ended else pytest.fail("a role that is gone was asked")
    )
    (told,) = broken(run, fault)
    rest = " before the first checkpoint: set run.checkpoint_every to save more often"
    rest = ", resume from the last checkpoint with: AGAIN" if saved else rest
    assert told == f"stopped: a role of the cluster is lost{rest}"
    assert run.saved is saved
    assert run.page is not None
    kept = "what was trained since the last checkpoint" if saved else "what was trained"
    assert f"{reason}: {kept} is not kept" in run.page.read_text()


def test_a_cluster_that_has_failed_is_not_saved_and_its_fault_is_what_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(load_config(write_data(tmp_path), [f"run.folder={tmp_path}"]))
    lose(monkeypatch, {})

    def failed(_: Trainer) -> None:
        raise InputError("the cluster has failed")

    monkeypatch.setattr(Trainer, "check_consistent", failed)
    (told,) = broken(run, InputError("a label is 3: must be from 0 to 1"))
    assert told == (
        "stopped: the cluster has failed before the first checkpoint: set run.checkpoint_every to save more often"
    )
    assert not run.saved
    assert run.page is not None
    assert "a label is 3: must be from 0 to 1: what was trained is not kept" in run.page.read_text()


@pytest.mark.parametrize("lost", [{}, LOST], ids=["none", "survived"])
def test_a_fault_that_is_no_loss_keeps_what_is_trained(
    lost: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(load_config(write_data(tmp_path), [f"run.folder={tmp_path}"]))
    lose(monkeypatch, lost)
    assert broken(run, InputError("stop")) == ["stopped: all that was trained is saved, resume with: AGAIN"]
    assert run.saved


def test_a_run_that_cannot_begin_gives_its_cluster_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    close = Trainer.close
    monkeypatch.setattr(Trainer, "close", lambda trainer: closed.append(trainer) or close(trainer))  # type: ignore[func-returns-value]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        Run(load_config(write_data(tmp_path), [f"run.folder={tmp_path / 'file'}"]))
    assert len(closed) == 1


@pytest.mark.parametrize("saved", [True, False])
def test_half_a_step_is_not_saved_and_the_last_checkpoint_stays(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG + ("checkpoint_every = 1\n" if saved else "")
    run = Run(load_config(write_data(tmp_path, text), [f"run.folder={tmp_path}"]))
    run.trainer._report_every_s = 0
    optimizer = run.trainer.optimizer
    assert optimizer is not None
    step, told = optimizer.step, []
    fault = InputError("a gradient was refused")

    def refused() -> None:
        step()
        if run.trainer.step == 3:
            raise fault

    monkeypatch.setattr(optimizer, "step", refused)
    with suppress(InputError), run:
        try:
            list(run)
        except InputError:
            told.append(stopped(run, fault, "AGAIN"))
            raise
    kept = ", resume from the last checkpoint with: AGAIN"
    kept = kept if saved else " before the first checkpoint: set run.checkpoint_every to save more often"
    assert told == [f"stopped: a step was applied in part{kept}"]
    assert run.saved is saved
    assert not saved or 1 <= checkpoint.peek(run.folder / "checkpoint").counters["step"] <= 3
    assert run.page is not None
    assert "a gradient was refused: what was trained" in run.page.read_text()


@pytest.mark.parametrize(
    ("saved", "saved_all", "told"),
    [
        (True, True, "resume with: hotrow --resume"),
        (True, False, "samples trained since the last checkpoint are lost, resume from it with: hotrow --resume"),
        (False, False, "nothing is saved, start again with: hotrow"),
    ],
)
def test_after_an_interrupt_the_command_says_what_is_kept(saved: bool, saved_all: bool, told: str) -> None:
    run = cast("Run", SimpleNamespace(saved=saved, saved_all=saved_all, origin=None))
    assert after_an_interrupt(run, "hotrow --resume") == told


def test_a_run_from_another_that_saved_nothing_is_started_from_it_again() -> None:
    origin = Origin(Place.of("runs/a b/checkpoint"), ("--from", "runs/a b"))
    run = cast("Run", SimpleNamespace(saved=False, saved_all=False, origin=origin))
    assert after_an_interrupt(run, "hotrow train a.toml --resume").endswith("hotrow train a.toml --from 'runs/a b'")
