"""string_ids: a text that is a whole number means that number, any other its hash."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.store import kernels
from oracles import kernels as slow

NULL = 99

NUMBERS = {
    b"0": 0,
    b"7": 7,
    b"-7": -7,
    b"42": 42,
    b"9223372036854775807": 2**63 - 1,
    b"9223372036854775808": 2**63,
    b"18446744073709551615": 2**64 - 1,
    b"-9223372036854775808": -(2**63),
}
TEXTS = [
    b"", b"-", b"-0", b"007", b"00", b"+1", b"1.0", b" 1", b"1 ", b"1e3", b"--1", b"1-", b"0x1", b"a", b"12a", b"1\x00",
    b"18446744073709551616", b"28446744073709551615", b"-9223372036854775809", b"100000000000000000000", b"-01",
    b"/", b":",
]  # fmt: skip


def ids(texts: list[bytes], **settings: Any) -> list[int]:
    return [int(each) for each in kernels.string_ids(pa.array(texts, pa.binary()), NULL, **settings).ids]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_whole_number_in_canonical_form_is_its_own_bits(text: bytes) -> None:
    assert ids([text]) == [NUMBERS[text] % 2**64]


@pytest.mark.parametrize("text", TEXTS)
def test_any_other_text_is_hashed(text: bytes) -> None:
    assert ids([text], seed=3) == [slow.hash_bytes(text, 3)]


numbers = st.integers(-(2**64), 2**65).map(lambda number: b"%d" % number)
near_numbers = st.text("0123456789-+. ", max_size=22).map(str.encode)


@given(st.lists(numbers | near_numbers | st.binary(max_size=24)), st.integers(0, 2**64 - 1), st.integers(1, 3))
@example([b"18446744073709551615", b"18446744073709551616"], 0, 1)
def test_equals_the_slow_twin(texts: list[bytes], seed: int, threads: int) -> None:
    assert ids(texts, seed=seed, threads=threads) == [slow.string_id(text, seed) for text in texts]


def test_as_text_every_id_is_hashed() -> None:
    assert ids([b"42", b"x"], text=True) == [slow.hash_bytes(b"42"), slow.hash_bytes(b"x")]


@given(st.lists(st.none() | st.sampled_from(["1", "x", "", "-5"]), max_size=30), st.data())
def test_nulls_slices_and_chunks(texts: list[str | None], data: st.DataObject) -> None:
    whole = pa.array(texts, data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.binary()])))
    first = data.draw(st.integers(0, len(texts)))
    expected = [NULL if text is None else slow.string_id(text.encode()) for text in texts]
    found = kernels.string_ids(whole[first:], NULL)
    assert found.ids.tolist() == expected[first:]
    assert found.null_count == texts[first:].count(None)
    assert kernels.string_ids(pa.chunked_array([whole[:first], whole[first:]]), NULL).ids.tolist() == expected


def test_integers_and_their_texts_have_the_same_ids() -> None:
    numbers = np.array([0, 1, -1, 10**18, -(2**63), 2**63 - 1])
    assert np.array_equal(kernels.string_ids(pa.array(numbers).cast(pa.string()), NULL).ids.view(np.int64), numbers)


def test_what_does_not_fit_is_told_under_its_own_name() -> None:
    with pytest.raises(InputError, match="string_ids: array is of int64: cast it to one of string"):
        kernels.string_ids(pa.array([1]), NULL)
    with pytest.raises(InputError, match="string_ids: null=-1: must be 0 or more"):
        kernels.string_ids(pa.array(["1"]), -1)
