"""Interactions of DLRM and DeepFM: values and gradients of the models, in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import InputError
from hotrow.kernels.dot_interaction import dot_interaction, reference_dot_interaction
from hotrow.kernels.second_order import reference_second_order, second_order
from hotrow.models.interactions import torch_weights_and_pairs
from profiles import examples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = st.tuples(st.integers(1, 5), st.integers(2, 19), st.sampled_from([1, 7, 16, 20]))


def check_equal(
    kernel: Callable[..., torch.Tensor], wanted: Callable[..., torch.Tensor], *inputs: torch.Tensor | None, near: float
) -> None:
    """Outputs and gradients of both, the second in float64."""
    single = [each if each is None else each.clone().requires_grad_() for each in inputs]
    double = [each if each is None else each.double().requires_grad_() for each in inputs]
    got, right = kernel(*single), wanted(*double)
    torch.testing.assert_close(got.double(), right, rtol=near, atol=near)
    gradient = torch.randn(right.shape, generator=torch.Generator().manual_seed(5)).to(DEVICE, got.dtype)
    got.backward(gradient)  # type: ignore[no-untyped-call]
    right.backward(gradient.double())  # type: ignore[no-untyped-call]
    for one, other in zip(single, double, strict=True):
        if one is not None and other is not None:
            assert one.grad is not None
            assert other.grad is not None
            torch.testing.assert_close(one.grad.double(), other.grad, rtol=near, atol=near)


@settings(max_examples=examples(25))
@given(SIZES, st.booleans(), st.booleans())
def test_dot_interaction_is_that_of_dlrm(sizes: tuple[int, int, int], with_dense: bool, bf16: bool) -> None:
    random = torch.Generator().manual_seed(sum(sizes))
    dtype = torch.bfloat16 if bf16 else torch.float32
    rows = torch.randn(sizes, generator=random).to(DEVICE, dtype)
    dense = torch.randn(sizes[0], sizes[2], generator=random).to(DEVICE, dtype) if with_dense else None
    check_equal(dot_interaction, reference_dot_interaction, rows, dense, near=0.05 if bf16 else 1e-5)


def test_pairs_come_in_the_order_of_dlrm() -> None:
    rows = torch.tensor([[[1.0, 0], [0, 1], [2, 3]]], device=DEVICE)
    dense = torch.tensor([[5.0, 7.0]], device=DEVICE)
    assert dot_interaction(rows, dense).tolist() == [[5, 7, 5, 7, 0, 31, 2, 3]]
    assert dot_interaction(rows).tolist() == [[0, 2, 3]]


@settings(max_examples=examples(25))
@given(SIZES, st.booleans(), st.booleans())
def test_second_order_is_that_of_deepfm(sizes: tuple[int, int, int], weights: bool, bf16: bool) -> None:
    random = torch.Generator().manual_seed(sum(sizes))
    rows = torch.randn(sizes, generator=random).to(DEVICE, torch.bfloat16 if bf16 else torch.float32)

    def wanted(x: torch.Tensor) -> torch.Tensor:
        return torch_weights_and_pairs(x) if weights else torch_weights_and_pairs(torch.cat([0 * x[:, :, :1], x], 2))

    check_equal(lambda x: second_order(x, weights), wanted, rows, near=0.05 if bf16 else 1e-4)
    check_equal(lambda x: reference_second_order(x, weights), wanted, rows, near=0.05 if bf16 else 1e-4)


def test_a_sample_too_large_for_a_kernel_is_computed_in_torch() -> None:
    rows = torch.randn(2, 130, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    torch.testing.assert_close(dot_interaction(rows), reference_dot_interaction(rows, None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dot_interaction(torch.zeros(2, 1, 4)), "1 vector: products need two, give a second field or `dense`"),
        (
            lambda: dot_interaction(torch.zeros(2, 1, 4), torch.zeros(2, 3)),
            "dense is torch.float32 (2, 3): must be torch.float32 (2, 4)",
        ),
        (
            lambda: dot_interaction(torch.zeros(2, 4)),
            "rows is torch.float32 (2, 4): must be torch.float32 or torch.bfloat16 (samples, fields, dim)",
        ),
        (
            lambda: dot_interaction(torch.zeros(2, 3, 4, dtype=torch.float64)),
            "rows is torch.float64 (2, 3, 4): must be torch.float32 or torch.bfloat16 (samples, fields, dim)",
        ),
        (
            lambda: second_order(torch.zeros(2, 4)),
            "rows is torch.float32 (2, 4): must be torch.float32 or torch.bfloat16 (samples, fields, width)",
        ),
        (
            lambda: second_order(torch.zeros(2, 3, 4, dtype=torch.float16)),
            "rows is torch.float16 (2, 3, 4): must be torch.float32 or torch.bfloat16 (samples, fields, width)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).partition(": ")[2] == message
