"""Dense parameters in shared memory: the next process finds those of the last complete write, whatever cut it off."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from hotrow.errors import SegmentError
from hotrow.server.dense_memory import PAGE, DenseMemory
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard
from hotrow.server.shared_rows import dense_path
from hotrow.store.segments import list_segments, remove_segment
from hotrow.transport.messages import ApplyOrder, OrderPart, Perform, PushDense, ResumeShard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hotrow-r-0-of-1.dense"


def tensors(value: float, size: int = 3) -> dict[str, Tensor]:
    return {"w": torch.full((size,), value), "n": torch.tensor(int(value)), "b": torch.ones(2, dtype=torch.bfloat16)}


def test_the_last_write_is_found_and_the_orderly_end_removes_it(path: Path) -> None:
    memory = DenseMemory(path)
    assert not memory.attached
    for number in (1, 2, 3):
        memory.write(tensors(number), {"step": number})
    memory.close(leave=True)
    found = DenseMemory(path)
    read, facts = found.read()
    assert facts == {"step": 3}
    assert {name: each.tolist() for name, each in read.items()} == {"w": [3.0] * 3, "n": 3, "b": [1.0, 1.0]}
    found.write(tensors(4, size=10_000), {"step": 4})  # it grows
    found.write(tensors(5, size=10_000), {"step": 5})
    assert found.read()[1] == {"step": 5}
    found.close()
    assert not path.exists()


@pytest.mark.parametrize("cut_at", range(0, 40, 4))
def test_a_write_that_is_cut_off_leaves_the_one_before(path: Path, cut_at: int) -> None:
    memory = DenseMemory(path)
    memory.write(tensors(1), {"step": 1})
    memory.write(tensors(2), {"step": 2})
    memory.close(leave=True)
    content = bytearray(path.read_bytes())
    words = np.frombuffer(content, np.uint64, 4)
    older = int(np.argmin(words[2:4]))
    start = PAGE + older * int(words[1])
    content[16 + 8 * older : 24 + 8 * older] = bytes(8)  # as a write begins
    content[start : start + cut_at] = bytes([255]) * cut_at
    path.write_bytes(content)
    path.chmod(0o600)
    found = DenseMemory(path)
    assert found.read()[1] == {"step": 2}
    found.close()


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    memory = DenseMemory(path)
    memory.write(tensors(1), {})
    memory.close(leave=True)
    path.chmod(0o644)
    with pytest.raises(SegmentError, match="is not a file of this user alone"):
        DenseMemory(path)


def test_it_is_listed_and_removed_with_the_segments(path: Path) -> None:
    memory = DenseMemory(path)
    memory.write(tensors(1), {})
    (info,) = list_segments(path.parent)
    assert (info.state, info.table) == ("in use", "(dense parameters)")
    memory.close(leave=True)
    (info,) = list_segments(path.parent)
    assert info.state == "left behind"
    remove_segment(path)
    assert not list_segments(path.parent)


def test_a_file_that_was_growing_when_its_process_died_is_listed_and_removed_too(path: Path) -> None:
    memory = DenseMemory(path)
    memory.write(tensors(1), {})
    growing = path.with_suffix(".growing")
    os.link(path, growing)  # as a process has it that is killed before it renames the file
    path.unlink()
    (info,) = list_segments(path.parent)
    assert (info.path, info.state, info.run, info.table) == (growing, "in use", "r-0-of-1", "(dense parameters)")
    with pytest.raises(SegmentError, match="in use; end that process first"):
        remove_segment(growing)
    memory.close(leave=True)
    (info,) = list_segments(path.parent)
    assert info.state == "left behind"
    remove_segment(growing)
    assert not growing.exists()


@pytest.fixture
def memory_path() -> Iterator[Path]:
    path = dense_path(f"test-{secrets.token_hex(4)}", 0, 1)
    yield path
    path.unlink(missing_ok=True)


def piece() -> DenseShard:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    return DenseShard(model, torch.optim.Adam(model.parameters(), lr=0.1), [0], buffers=False)


def push(service: DenseService, grant: int) -> None:
    gradient = torch.full((1, 3), float(grant))
    service.push(PushDense(grant, 0, 0, 0, 4, (True,)), [memoryview(gradient.numpy().tobytes())])


def step_of(order: int, *grants: int) -> Perform:
    parts = tuple(OrderPart(grant, order, order, 4, 1.0) for grant in grants)
    return Perform(1, order, (ApplyOrder("both", order - 1, 4, 1.0, parts),))


def test_a_process_goes_on_where_the_one_before_was_and_counts_what_is_lost(memory_path: Path) -> None:
    """An order that was performed and not answered comes again; the pushes of the next one are gone."""
    uncut, killed = DenseService(piece()), DenseService(piece(), DenseMemory(memory_path))
    for service in (uncut, killed):
        service.begin(True, None, 1)
        for order in (1, 2):
            push(service, order)
            assert service.perform(step_of(order, order)) == ([], 0)
    push(killed, 3)
    killed.close(leave=True)
    again = DenseService(piece(), DenseMemory(memory_path))
    assert again.found
    again.resume(ResumeShard(1, dense=True, step=1), None)
    assert again.perform(step_of(2, 2)) == ([], 0)  # it is in the memory
    assert again.perform(step_of(3, 3)) == ([], 1)
    push(uncut, 5)
    uncut.perform(step_of(4, 5))
    push(again, 5)
    assert again.perform(step_of(4, 4, 5))[1] == 1
    assert again.pulled()[0].step == 4
    push(uncut, 6)
    uncut.perform(step_of(5, 6))
    push(again, 6)
    again.perform(step_of(5, 6))
    (state,) = again._piece._states()
    assert state["step"] == uncut._piece._states()[0]["step"]
    again.close()


def test_an_order_that_is_skipped_discards_its_pushes(memory_path: Path) -> None:
    """A push that the order discards may be sent again to the new process, before the order is."""
    killed = DenseService(piece(), DenseMemory(memory_path))
    killed.begin(True, None, 1)
    push(killed, 1)
    killed.perform(step_of(1, 1))
    killed.close(leave=True)
    again = DenseService(piece(), DenseMemory(memory_path))
    again.resume(ResumeShard(0, dense=True, step=0), None)
    push(again, 2)
    assert again.perform(replace(step_of(1, 1), discards=(2,))) == ([], 0)
    push(again, 2)
    assert again.figures()["dense_parked"] == 0
    again.close()
