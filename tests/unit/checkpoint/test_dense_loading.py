"""The dense part of a checkpoint comes back alone: rows stay, and a changed file changes nothing."""

from pathlib import Path

import pytest
import torch
from torch import nn

from hotrow import checkpoint
from hotrow.checkpoint.dense_loading import load_dense
from hotrow.errors import InputError

SAVED = checkpoint.Saved({"step": 1, "samples": 8}, None, {})


def trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [value for state in optimizer.state.values() for _, value in sorted(state.items())]
    return [each.detach().clone() for each in (*model.parameters(), *moments)]


def test_parameters_and_optimizer_come_back_and_the_learning_rate_stays(tmp_path: Path) -> None:
    saved = trained(1)
    checkpoint.save(tmp_path / "saved", *saved, {}, SAVED)
    other = trained(2)
    load_dense(tmp_path / "saved", *other)
    assert all(torch.equal(*pair) for pair in zip(state_of(*saved), state_of(*other), strict=True))
    assert other[1].param_groups[0]["lr"] == 0.2


def test_a_changed_file_is_named_and_nothing_changes(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "saved", *trained(1), {}, SAVED)
    (file,) = (tmp_path / "saved").rglob("dense*")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    other = trained(2)
    before = state_of(*other)
    with pytest.raises(InputError, match=r"checkpoint .*saved.*: dense\S* was changed since it was saved"):
        load_dense(tmp_path / "saved", *other)
    assert all(torch.equal(*pair) for pair in zip(before, state_of(*other), strict=True))
