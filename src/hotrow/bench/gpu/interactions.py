"""Part `interactions`: DLRM's products and DeepFM's second order, forward and backward, beside torch.

Rates are in millions of samples per second.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.kernels.dot_interaction import dot_interaction, reference_dot_interaction
from hotrow.kernels.second_order import reference_second_order, second_order

Interaction = Callable[[Tensor, Tensor], Tensor]

PAIRS: dict[str, tuple[Interaction, Interaction]] = {
    "dot_interaction": (dot_interaction, reference_dot_interaction),
    "second_order": (lambda rows, dense: second_order(rows), lambda rows, dense: reference_second_order(rows, True)),
}


def _inputs(device: torch.device, plan: GpuPlan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    random = torch.Generator(device).manual_seed(plan.seed)
    rows = torch.randn(plan.samples, plan.fields, plan.dim, device=device, generator=random)
    dense = torch.randn(plan.samples, plan.dim, device=device, generator=random)
    return rows.to(dtype).requires_grad_(), dense.to(dtype).requires_grad_()


def _both_ways(interaction: Interaction, rows: Tensor, dense: Tensor) -> list[Tensor]:
    """The output, and the gradients of the inputs that have one."""
    rows.grad = dense.grad = None
    out = interaction(rows, dense)
    out.backward(torch.ones_like(out))  # type: ignore[no-untyped-call]
    return [out.detach(), *(each.grad for each in (rows, dense) if each.grad is not None)]


def check(device: torch.device, plan: GpuPlan) -> None:
    """Compare outputs and gradients of float32 and bfloat16 with torch's of the same numbers, in float32."""
    for dtype, rtol, atol in ((torch.float32, 1e-4, 5e-3), (torch.bfloat16, 0.02, 0.05)):
        inputs = _inputs(device, plan, dtype)
        exact = [each.detach().float().requires_grad_() for each in inputs]
        for kernel, reference in PAIRS.values():
            for got, wanted in zip(_both_ways(kernel, *inputs), _both_ways(reference, *exact), strict=True):
                torch.testing.assert_close(got.float(), wanted, rtol=rtol, atol=atol)


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    for dtype, suffix in ((torch.float32, ""), (torch.bfloat16, "_bf16")):
        inputs = _inputs(clock.device, plan, dtype)
        for name, (kernel, reference) in PAIRS.items():
            yield f"{name}{suffix}_msamples", _rate(clock, kernel, *inputs)
            yield f"{name}{suffix}_torch_msamples", _rate(clock, reference, *inputs)


def _rate(clock: EventClock, interaction: Interaction, rows: Tensor, dense: Tensor) -> float:
    return len(rows) / clock.seconds(lambda _: _both_ways(interaction, rows, dense)) / 1e6
