"""update_from_bags: sums of gradients and the update in one pass give what scatter and update_rows give one by one."""

import logging
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import InputError
from hotrow.kernels import cuda
from hotrow.kernels.backward import update_from_bags
from hotrow.kernels.scatter import WINDOW, scatter
from hotrow.kernels.unique import unique
from hotrow.kernels.update import RowFields, UpdateRule, update_rows
from hotrow.kernels.update_tile import TableRows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, ROWS = 3, 40
RULES = [
    UpdateRule("sgd", lr=0.1, clip=0.5, decay=0.1),
    UpdateRule("adagrad", lr=0.1, initial=0.1, l2=0.1),
    UpdateRule("rowwise_adagrad", lr=0.1, swap_period=10, swap_decay=0.5),
    UpdateRule("decayed_adagrad", lr=0.1, rate=0.9),
    UpdateRule("adam", lr=0.1),
]


def table(rule: UpdateRule) -> TableRows:
    random = torch.Generator().manual_seed(1)
    values = torch.randn(ROWS, DIM, generator=random).to(DEVICE)
    state = torch.rand(ROWS, rule.state_dim(DIM), generator=random).to(DEVICE)
    counters = torch.ones(ROWS, 4, dtype=torch.int32, device=DEVICE)  # side by side, as in a table
    refused = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    return TableRows("test", rule, values, state, RowFields(*counters.unbind(1)), refused)


def keys_with_counts(*counts: int) -> torch.Tensor:
    """Key k so often, shuffled."""
    keys = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(2))].to(DEVICE)


@pytest.mark.parametrize("bags", [False, True], ids=["keys", "bags"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_one_pass_does_what_two_do(rule: UpdateRule, bags: bool) -> None:
    """With keys on both sides of the bound of a window, one without a row, one turned away and one not finite."""
    keys = keys_with_counts(1, WINDOW, WINDOW + 1, 2, 3 * WINDOW + 5, 1, WINDOW + 3, 2, 1, 3)
    found = unique(keys)
    size = int(found.size)
    slots = torch.full_like(keys, -1)
    slots[:size] = found.keys[:size] * 3 + 1  # a row that is not its number
    slots[:size][found.keys[:size] == 5] = -1
    slots[:size][found.keys[:size] == 6] = -2  # a frequent one
    offsets = torch.tensor([0, 4, 4, len(keys) // 2, len(keys)], device=DEVICE) if bags else None
    count = len(keys) if offsets is None else len(offsets) - 1
    gradients = torch.randn(count, DIM, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    if not bags:
        gradients[(keys == 7).nonzero()[0]] = torch.inf
    one, two = table(rule), table(rule)
    missing = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    when: dict[str, Any] = {"step": 4, "samples": 35, "lr_scale": 0.5}
    update_from_bags(one, slots, found, gradients, offsets, "mean", **when, missing=missing)
    sums = scatter(found, gradients, offsets, "mean")
    update_rows(rule, two.values, two.state, slots, sums, two.fields, refused=two.refused, **when)
    torch.testing.assert_close(one.values, two.values)
    if one.state is not None:
        torch.testing.assert_close(one.state, two.state)
    for (_, ours), (_, theirs) in zip(one.fields.present(), two.fields.present(), strict=True):
        assert torch.equal(ours, theirs)
    assert (missing.tolist(), one.refused.tolist()) == ([1, 1], [0 if bags else 1])


def test_gradients_of_another_width_are_refused() -> None:
    rows, found = table(RULES[0]), unique(keys_with_counts(2, 1))
    with pytest.raises(InputError, match=r"gradients is torch.float32 \(3, 4\): must be torch.float32 \(3, 3\)$"):
        update_from_bags(rows, torch.zeros_like(found.keys), found, torch.zeros(3, DIM + 1, device=DEVICE))


def test_counters_with_different_strides_are_refused() -> None:
    side_by_side, alone = torch.ones(ROWS, 4, dtype=torch.int32), torch.ones(ROWS, dtype=torch.int32)
    with pytest.raises(InputError, match="fields have different strides: give columns of one tensor"):
        TableRows(
            "test", RULES[0], torch.zeros(ROWS, DIM), None, RowFields(side_by_side[:, 0], alone),
            torch.zeros(1, dtype=torch.int64),
        )  # fmt: skip


def test_a_cuda_kernel_that_does_not_compile_is_said_once_and_runs_in_triton(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise cuda.CudaError("no program")

    monkeypatch.setattr(cuda, "_made", {})
    monkeypatch.setattr(cuda, "CudaKernels", refuse)
    with caplog.at_level(logging.WARNING):
        assert [cuda.cuda_kernels("fold.cu", torch.device("cuda", 0), THREADS=32) for _ in range(2)] == [None, None]
    assert [record.message for record in caplog.records] == ["kernels of fold.cu run in Triton: no program"]


def test_triton_alone_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "CudaKernels", lambda *_: pytest.fail("a CUDA kernel was made"))
    with cuda.triton_only():
        assert cuda.cuda_kernels("fold.cu", torch.device("cuda", 0)) is None
    assert cuda.cuda_kernels("fold.cu", torch.device("cpu")) is None
