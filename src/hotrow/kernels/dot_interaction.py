"""DLRM's interaction: products of every two vectors of a sample, behind its dense vector, in one pass each way.

In torch this is a concatenation, a batched product of which half is thrown away, a selection and a concatenation.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hotrow.errors import InputError
from hotrow.kernels.launch import check_vectors, launch, takes_kernel

_TILE_MAX = 2**14  # elements of a sample's vectors, padded, and of their products: what registers hold


def dot_interaction(rows: Tensor, dense: Tensor | None = None) -> Tensor:
    """[samples, dim + pairs]: the dense vector, then <v_i, v_j> for all j < i, row by row; differentiable.

    rows [samples, fields, dim], dense [samples, dim], which is vector 0; float32 or bfloat16. Without `dense` there are
    only the products of rows. Sums are float32. Samples too large for a kernel are computed in torch.
    """
    check_vectors("dot_interaction", rows)
    samples, fields, dim = rows.shape
    if dense is not None and (dense.shape != (samples, dim) or dense.dtype != rows.dtype):
        raise InputError(
            f"dot_interaction: dense is {dense.dtype} {tuple(dense.shape)}: must be {rows.dtype} ({samples}, {dim})"
        )
    vectors = fields + (dense is not None)
    if vectors < 2:
        raise InputError(f"dot_interaction: {vectors} vector: products need two, give a second field or `dense`")
    tile = _padded(vectors) * max(_padded(vectors), _padded(dim))
    if not takes_kernel(rows) or tile > _TILE_MAX or not samples:
        return reference_dot_interaction(rows, dense)
    result: Tensor = _DotInteraction.apply(rows, dense)
    return result


def reference_dot_interaction(rows: Tensor, dense: Tensor | None) -> Tensor:
    """The same in torch."""
    vectors = rows if dense is None else torch.cat([dense[:, None], rows], 1)
    left, right = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1, device=rows.device)
    products = (vectors @ vectors.transpose(1, 2))[:, left, right]
    return products if dense is None else torch.cat([dense, products], 1)


def _padded(size: int) -> int:
    return max(16, int(triton.next_power_of_2(size)))  # a product of matrices takes 16 by 16 at least


class _DotInteraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, dense: Tensor | None) -> Tensor:
        rows, dense = rows.contiguous(), None if dense is None else dense.contiguous()
        ctx.save_for_backward(rows, dense)
        samples, fields, dim = rows.shape
        vectors = fields + (dense is not None)
        width = vectors * (vectors - 1) // 2 + (dim if dense is not None else 0)
        out = rows.new_empty(samples, width)
        launch(_dot_forward_kernel, samples, rows, dense, out, width, **_sizes(rows, dense))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        rows, dense = ctx.saved_tensors
        to_rows, to_dense = torch.empty_like(rows), None if dense is None else torch.empty_like(dense)
        gradient = gradient.contiguous()
        tensors = (rows, dense, gradient, to_rows, to_dense)
        launch(_dot_backward_kernel, len(rows), *tensors, gradient.shape[1], **_sizes(rows, dense))
        return to_rows, to_dense


def _sizes(rows: Tensor, dense: Tensor | None) -> dict[str, Any]:
    fields, dim = rows.shape[1:]
    padded = {"BLOCK_VECTORS": _padded(fields + (dense is not None)), "BLOCK_DIM": _padded(dim)}
    # bfloat16 is exact in TF32, which tensor cores multiply; float32 is not.
    precision = "tf32" if rows.dtype == torch.bfloat16 else "ieee"
    return {"FIELDS": fields, "DIM": dim, "DENSE": int(dense is not None), "PRECISION": precision, **padded}


@triton.jit
def _vectors(rows, dense, sample, vector, column, FIELDS: tl.constexpr, DIM: tl.constexpr, DENSE: tl.constexpr):
    """The vectors of a sample in float32, padded with zeros."""
    field = vector - DENSE
    inside = ((field >= 0) & (field < FIELDS))[:, None] & (column < DIM)[None, :]
    found = tl.load(rows + (sample * FIELDS + field[:, None]) * DIM + column[None, :], mask=inside, other=0.0)
    if dense is not None:
        first = (vector == 0)[:, None] & (column < DIM)[None, :]
        found += tl.load(dense + sample * DIM + column[None, :] + 0 * vector[:, None], mask=first, other=0.0)
    return found.to(tl.float32)


@triton.jit
def _dot_forward_kernel(
    rows, dense, out, width,
    FIELDS: tl.constexpr, DIM: tl.constexpr, DENSE: tl.constexpr,
    BLOCK_VECTORS: tl.constexpr, BLOCK_DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    vector, column = tl.arange(0, BLOCK_VECTORS), tl.arange(0, BLOCK_DIM)
    x = _vectors(rows, dense, sample, vector, column, FIELDS, DIM, DENSE)
    products = tl.dot(x, tl.trans(x), input_precision=PRECISION)
    left, right = vector[:, None], vector[None, :]
    at = out + sample * width
    pair = DENSE * DIM + left * (left - 1) // 2 + right
    tl.store(at + pair, products.to(out.dtype.element_ty), mask=(right < left) & (left < FIELDS + DENSE))
    if dense is not None:
        whole = tl.load(dense + sample * DIM + column, mask=column < DIM)
        tl.store(at + column, whole, mask=column < DIM)


@triton.jit
def _dot_backward_kernel(
    rows, dense, gradient, to_rows, to_dense, width,
    FIELDS: tl.constexpr, DIM: tl.constexpr, DENSE: tl.constexpr,
    BLOCK_VECTORS: tl.constexpr, BLOCK_DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64)
    vector, column = tl.arange(0, BLOCK_VECTORS), tl.arange(0, BLOCK_DIM)
    x = _vectors(rows, dense, sample, vector, column, FIELDS, DIM, DENSE)
    high = tl.maximum(vector[:, None], vector[None, :])
    low = tl.minimum(vector[:, None], vector[None, :])
    at = gradient + sample * width
    pair = DENSE * DIM + high * (high - 1) // 2 + low
    of_pairs = tl.load(at + pair, mask=(low < high) & (high < FIELDS + DENSE), other=0.0)  # symmetric
    of_vectors = tl.dot(of_pairs.to(tl.float32), x, input_precision=PRECISION)
    field = vector - DENSE
    inside = ((field >= 0) & (field < FIELDS))[:, None] & (column < DIM)[None, :]
    found = of_vectors.to(to_rows.dtype.element_ty)
    tl.store(to_rows + (sample * FIELDS + field[:, None]) * DIM + column[None, :], found, mask=inside)
    if dense is not None:
        first = (vector == 0)[:, None] & (column < DIM)[None, :]
        passed = tl.load(at + column[None, :] + 0 * vector[:, None], mask=first, other=0.0)
        both = (of_vectors + passed.to(tl.float32)).to(to_rows.dtype.element_ty)
        tl.store(to_dense + sample * DIM + column[None, :] + 0 * vector[:, None], both, mask=first)
