"""Copies of a route plan between torch devices: `execute(plan, copies, copies.wait)`.

On CUDA devices every link has streams of its own, so that the copies of a phase run at the same time. Torch orders a
copy between two devices behind the current streams of both; both are set, or all copies to one GPU would queue.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import torch

from hotrow.errors import InputError
from hotrow.routes.fabric import Pair
from hotrow.routes.plan import Block, RoutePlan


class TorchPeerCopy:
    """The bytes that GPUs send and receive, and the forward buffers of a plan.

    `sends` and `receives` have a tensor of bytes for each pair of the plan, on the device of its source or target.
    Devices may repeat.
    """

    def __init__(
        self,
        plan: RoutePlan,
        devices: Sequence[torch.device],
        sends: Mapping[Pair, torch.Tensor],
        receives: Mapping[Pair, torch.Tensor],
    ) -> None:
        if len(devices) != plan.fabric.gpus:
            raise InputError(f"devices: has {len(devices)} and the plan {plan.fabric.gpus} GPUs: give one for each")
        for route in plan.routes:
            pair = route.source, route.target
            _check_bytes("sends", sends, pair, devices[route.source], route.size)
            _check_bytes("receives", receives, pair, devices[route.target], route.size)
        self._devices, self._sends, self._receives = devices, sends, receives
        self.buffers = {
            (each.source, each.target): torch.empty(each.size, dtype=torch.uint8, device=devices[each.gpu])
            for each in plan.buffers
        }
        self._streams: dict[Pair, tuple[torch.cuda.Stream, ...]] = {}

    def __call__(self, src: int, dst: int, block: Block, size: int, /) -> None:
        """Start a copy."""
        pair = block.source, block.target
        origin = (self._sends if src == block.source else self.buffers)[pair]
        target = (self._receives if dst == block.target else self.buffers)[pair]
        piece = slice(block.offset, block.offset + size)
        with ExitStack() as streams:
            for stream in self._link_streams(src, dst):
                streams.enter_context(torch.cuda.stream(stream))
            target[piece].copy_(origin[piece], non_blocking=True)

    def wait(self) -> None:
        """Order what follows, on links and on the current streams of the devices, behind all copies so far.

        The calling thread does not wait.
        """
        streams = [stream for pair in self._streams.values() for stream in pair]
        done = [stream.record_event() for stream in streams]
        for stream in (*streams, *self._current_streams()):
            for event in done:
                stream.wait_event(event)

    def _link_streams(self, src: int, dst: int) -> tuple[torch.cuda.Stream, ...]:
        """One on each device of a link, behind what these devices do now."""
        ends = dict.fromkeys(each for each in (self._devices[src], self._devices[dst]) if each.type == "cuda")
        if (src, dst) not in self._streams:
            self._streams[src, dst] = tuple(torch.cuda.Stream(device) for device in ends)  # type: ignore[no-untyped-call]
        for device, stream in zip(ends, self._streams[src, dst], strict=True):
            stream.wait_stream(torch.cuda.current_stream(device))
        return self._streams[src, dst]

    def _current_streams(self) -> Iterator[torch.cuda.Stream]:
        for device in dict.fromkeys(self._devices):
            if device.type == "cuda":
                yield torch.cuda.current_stream(device)


def cuda_devices(gpus: int) -> list[torch.device]:
    """The CUDA devices of a plan; InputError where there are fewer."""
    found = torch.cuda.device_count()
    if found < gpus:
        raise InputError(f"devices: the plan has {gpus} GPUs and this process sees {found}: plan for those")
    return [torch.device("cuda", number) for number in range(gpus)]


def _check_bytes(field: str, tensors: Mapping[Pair, torch.Tensor], pair: Pair, device: torch.device, size: int) -> None:
    tensor = tensors.get(pair)
    if tensor is None:
        raise InputError(f"{field}[{pair}]: is missing: give a tensor of {size} bytes on {device}")
    fits = tensor.dtype == torch.uint8 and tensor.shape == (size,) and tensor.is_contiguous()
    if not fits or tensor.device != device:
        shape = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
        raise InputError(f"{field}[{pair}]: is {shape}: must be {size} contiguous uint8 on {device}")
