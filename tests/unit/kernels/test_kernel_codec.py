"""fp16 rows: the bits of the native codec."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import InputError
from hotrow.kernels.codec import decode_rows, encode_rows, reference_decode, reference_encode
from hotrow.store import kernels as native
from profiles import examples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TABLES = arrays.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 18)), elements=st.floats(width=32))

EDGES = np.array(
    [[3.4e38, 1.0], [1e-42, -1e-44], [1e-45, 0.0], [np.inf, 2.0], [np.nan, -0.0], [-np.inf, np.nan], [0.0, -0.0]],
    np.float32,
)


def bits(half: torch.Tensor) -> list[int]:
    """Bits of fp16, every NaN as one."""
    return torch.where(half.isnan(), torch.nan, half).cpu().view(torch.int16).flatten().tolist()


@settings(max_examples=examples(60))
@given(TABLES)
@example(EDGES)
def test_rows_have_the_bits_of_the_native_codec(rows: NDArray[np.float32]) -> None:
    wanted_half, wanted_scale = native.encode_rows(rows)
    wanted = native.decode_rows(wanted_half, wanted_scale)
    tensor = torch.from_numpy(rows).to(DEVICE)
    for encode, decode in ((encode_rows, decode_rows), (reference_encode, reference_decode)):
        half, scale = encode(tensor)
        assert scale.tolist() == wanted_scale.tolist()
        assert bits(half) == bits(torch.from_numpy(wanted_half.view(np.float16)))
        np.testing.assert_array_equal(decode(half, scale).cpu().numpy(), wanted)


def test_a_scale_for_each_row_is_demanded() -> None:
    with pytest.raises(InputError, match=r"scale is torch.float32 \(2,\): must be torch.float32 \(3\)$"):
        decode_rows(torch.zeros(3, 2, dtype=torch.float16), torch.zeros(2))
