"""Gradients added up over ranks are those of one large batch, however uneven the ranks' shares are."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from hotrow.worker.reducer import Reducer

RANKS = 2


class Net(nn.Module):
    """Its second branch is not used unless asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.rare = nn.Linear(5, 7), nn.Linear(7, 1), nn.Linear(5, 1)

    def forward(self, rows: Tensor, *, rare: bool = False) -> Tensor:
        output: Tensor = self.second(torch.tanh(self.first(rows)))
        return output + self.rare(rows) if rare else output


def model() -> Net:
    torch.manual_seed(3)
    return Net()


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=chance), torch.randn(count, 1, generator=chance)


# By step and rank: the samples of each of its batches.
STEPS = [[[4], [4]], [[3, 5], [2, 1]], [[6], []], [[], [2, 2, 2]], [[1], [7]]]


def loss_of(net: Net, given: tuple[Tensor, Tensor], *, rare: bool) -> Tensor:
    return nn.functional.mse_loss(net(given[0], rare=rare), given[1])


def whole_batches(net: Net, optimizer: torch.optim.Optimizer) -> None:
    """The same steps in one process, each as one large batch."""
    for step, ranks in enumerate(STEPS):
        pieces = [
            rows(size, 100 * step + 10 * rank + n) for rank, sizes in enumerate(ranks) for n, size in enumerate(sizes)
        ]
        joined = torch.cat([a for a, _ in pieces]), torch.cat([b for _, b in pieces])
        optimizer.zero_grad(set_to_none=True)
        loss_of(net, joined, rare=step == 3).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def train_all(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    for bucket_bytes in (4, 150, 4 << 20):
        train(rank, bucket_bytes)
    dist.barrier()  # a rank that leaves while others still talk to it makes gloo's threads abort the process
    dist.destroy_process_group()


def train(rank: int, bucket_bytes: int) -> None:
    net, reference = model(), model()
    whole_batches(reference, torch.optim.Adam(reference.parameters(), lr=0.1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    reducer = Reducer(list(net.parameters()), bucket_bytes=bucket_bytes)
    for step, ranks in enumerate(STEPS):
        reducer.begin()
        for number, size in enumerate(ranks[rank]):
            if number == len(ranks[rank]) - 1:
                reducer.last()
            loss = loss_of(net, rows(size, 100 * step + 10 * rank + number), rare=step == 3)
            (loss * size / 4).backward()  # type: ignore[no-untyped-call]
        assert reducer.finish(sum(ranks[rank]), 0.1 + rank, unit=4) == (sum(map(sum, ranks)), 0.1)
        assert (net.rare.weight.grad is None) == (step != 3)  # nobody used it: the optimizer must not move it
        optimizer.step()
    for ours, theirs in zip(net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    reducer.close()


def test_uneven_shares_are_one_large_batch(tmp_path: Path) -> None:
    mp.spawn(train_all, args=(str(tmp_path / "store"),), nprocs=RANKS)  # type: ignore[attr-defined, no-untyped-call]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_buckets_go_off_from_the_last_parameter_on_while_backward_runs() -> None:
    net = model()
    reducer = Reducer(list(net.parameters()), bucket_bytes=4)
    reducer.begin()
    reducer.last()
    loss_of(net, rows(3, 1), rare=True).backward()  # type: ignore[no-untyped-call]
    assert len(reducer._sent) == len(list(net.parameters()))  # before anybody called finish
    reducer.finish(3)
    reducer.close()
    assert all(parameter.grad is None for parameter in net.parameters())
