"""A plan that is performed brings every byte to its target once, within the buffers that it names."""

import pytest
import torch
from hypothesis import given, settings

from hotrow.errors import InputError
from hotrow.reproduce.kstep_routes import paper_node
from hotrow.routes import Fabric, Pair, RoutePlan, execute, plan_routes
from hotrow.topology.peer_copy import TorchPeerCopy, cuda_devices
from oracles.routes import GpuMemory, bytes_of
from unit.routes.drawn_fabrics import Sizes, exchanges, mesh

Tensors = dict[Pair, torch.Tensor]


@settings(deadline=None)
@given(exchanges())
def test_every_byte_arrives_once_and_buffers_stay_within_the_plan(drawn: tuple[Fabric, Sizes]) -> None:
    plan = plan_routes(*drawn)
    memory = GpuMemory(bytes_of(plan))
    execute(plan, memory.copy, memory.wait)
    arrived = {pair: bytes(each[place] for place in range(len(each))) for pair, each in memory.received.items()}
    assert arrived == memory.sends
    assert {gpu: size for gpu, size in enumerate(plan.buffer_bytes) if size} == memory.peaks
    sizes = {(gpu, pair): len(held) for (gpu, pair), held in memory.forwarded.items()}
    assert sizes == {(each.gpu, (each.source, each.target)): each.size for each in plan.buffers}
    over_host = {(each.source, each.target) for each in plan.routes if each.kind == "host"}
    assert all(plan.fabric.linked(hop) for hop in memory.hops - over_host)


def test_a_copy_that_may_return_early_needs_the_wait_between_the_phases() -> None:
    plan = plan_routes(paper_node(), 1_000)
    memory = GpuMemory(bytes_of(plan))
    with pytest.raises(KeyError):
        execute(plan, memory.copy)


def tensors_of(plan: RoutePlan, devices: list[torch.device]) -> tuple[Tensors, Tensors]:
    sends = {
        pair: torch.tensor(list(sent), dtype=torch.uint8, device=devices[pair[0]])
        for pair, sent in bytes_of(plan).items()
    }
    return sends, {pair: torch.zeros_like(sent, device=devices[pair[1]]) for pair, sent in sends.items()}


def check_exchange(plan: RoutePlan, devices: list[torch.device]) -> None:
    """Twice with the same buffers, with other bytes. Forwarded bytes are gone at their source after phase 1."""
    sends, receives = tensors_of(plan, devices)
    copies = TorchPeerCopy(plan, devices, sends, receives)
    forwarded = {(each.source, each.target) for each in plan.buffers}

    def wait() -> None:
        copies.wait()
        for pair in forwarded:
            sends[pair].zero_()

    for _ in range(2):
        sent = {pair: each.cpu().clone() for pair, each in sends.items()}
        execute(plan, copies, wait)
        assert all(torch.equal(received.cpu(), sent[pair]) for pair, received in receives.items())
        for pair, each in sends.items():
            each.copy_(sent[pair] + 1)
    gpus = range(plan.fabric.gpus)
    held = [sum(each.numel() for pair, each in copies.buffers.items() if pair in on(plan, gpu)) for gpu in gpus]
    assert held == list(plan.buffer_bytes)


def on(plan: RoutePlan, gpu: int) -> set[Pair]:
    return {(each.source, each.target) for each in plan.buffers if each.gpu == gpu}


def test_tensors_are_exchanged_between_devices() -> None:
    check_exchange(plan_routes(paper_node(), 1_000), [torch.device("cpu")] * 8)


def test_tensors_of_linked_pairs_may_be_cut_between_the_phases() -> None:
    plan = plan_routes(mesh({(0, 1): 1, (1, 2): 1}, 3), [[0, 0, 8_192], [0, 0, 0], [0, 20_000, 0]])
    assert sorted(copy.block.offset for phase in plan.phases for copy in phase.copies) == [0, 0, 0, 8_192]
    check_exchange(plan, [torch.device("cpu")] * 3)


@pytest.mark.gpu
def test_tensors_are_exchanged_between_cuda_devices() -> None:
    found = torch.cuda.device_count()
    check_exchange(plan_routes(paper_node(), 1_000_003), [torch.device("cuda", gpu % found) for gpu in range(8)])


def test_tensors_that_do_not_fit_get_a_sentence() -> None:
    plan, devices = plan_routes(paper_node(), 10), [torch.device("cpu")] * 8
    sends, receives = tensors_of(plan, devices)
    with pytest.raises(InputError, match=r"^devices: has 7 and the plan 8 GPUs"):
        TorchPeerCopy(plan, devices[:7], sends, receives)
    with pytest.raises(InputError, match=r"^sends\[\(0, 1\)\]: is missing: give a tensor of 10 bytes on cpu"):
        TorchPeerCopy(plan, devices, {}, receives)
    with pytest.raises(InputError, match=r"^receives\[\(0, 1\)\]: is \(9,\) uint8 on cpu: must be 10 contiguous uint8"):
        TorchPeerCopy(plan, devices, sends, receives | {(0, 1): receives[0, 1][:9]})
    with pytest.raises(InputError, match=r"the plan has 1000 GPUs and this process sees"):
        cuda_devices(1000)
