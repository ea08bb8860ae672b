"""hash_strings: a hash that never changes, read straight from Arrow's buffers."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.store import kernels
from oracles import kernels as slow

pa = pytest.importorskip("pyarrow")
compute = pytest.importorskip("pyarrow.compute")

TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
NULL = 12345

# Part of every checkpoint trained on strings: a change here is a change of format.
KNOWN = {
    (b"", 0): 0xEF46DB3751D8E999,
    (b"a", 0): 0xD24EC4F1A98C6E5B,
    (b"abc", 0): 0x44BC2CF5AD770999,
    (b"hotrow", 0): 0x3EE9C35900A8C50F,
    (b"12345678", 0): 0xD2D02F08CF7CFD4A,
    (b"123456789", 0): 0x8CB841DB40E6AE83,
    (b"\x00", 0): 0xE934A84ADB052768,
    (b"\x00\x00", 0): 0x9AABA41FFA2DA101,
    (b"68fd1e64", 1): 0xD2E5A37BB032083C,
    (bytes(range(31)), 7): 0x0BDBBCAEAD6C6E56,
    (bytes(range(32)), 7): 0xA5972D57C4AEA230,
    (bytes(range(33)), 7): 0x0C43E57754C778D9,
    (bytes(range(256)), 2**64 - 1): 0x9FD2BFCEE8985E7F,
}


def hash_list(texts: list[bytes], **settings: int) -> list[int]:
    return [int(each) for each in kernels.hash_strings(pa.array(texts, pa.binary()), **settings).hashes]


@pytest.mark.parametrize(("text", "seed"), KNOWN)
def test_known_answers(text: bytes, seed: int) -> None:
    assert hash_list([text], seed=seed) == [KNOWN[text, seed]]
    assert slow.hash_bytes(text, seed) == KNOWN[text, seed]


def test_every_length_equals_the_library() -> None:
    text = bytes(range(200, 256)) * 3
    texts = [text[:length] for length in range(140)]  # past four stripes of 32 bytes, with every rest
    for seed in (0, 1, 2**63):
        assert hash_list(texts, seed=seed) == [slow.hash_bytes(each, seed) for each in texts]


@given(st.lists(st.binary(max_size=80)), st.integers(0, 2**64 - 1), st.integers(1, 3))
def test_equals_the_slow_twin(texts: list[bytes], seed: int, threads: int) -> None:
    assert hash_list(texts, seed=seed, threads=threads) == [slow.hash_bytes(text, seed) for text in texts]


@given(st.lists(st.none() | st.text(max_size=12), max_size=40), st.sampled_from(TYPES), st.data())
def test_slices_chunks_and_nulls_of_every_type(texts: list[str | None], kind: Any, data: st.DataObject) -> None:
    whole = pa.array(texts, pa.string()).cast(kind)
    first = data.draw(st.integers(0, len(texts)))
    end = data.draw(st.integers(first, len(texts)))
    expected = [NULL if text is None else slow.hash_bytes(text.encode()) for text in texts]
    part = kernels.hash_strings(whole[first:end], null=NULL)
    assert part.hashes.tolist() == expected[first:end]
    assert part.null_count == texts[first:end].count(None)
    chunked = pa.chunked_array([whole[:first], whole[first:end], whole[end:]], kind)
    assert kernels.hash_strings(chunked, null=NULL).hashes.tolist() == expected
    assert kernels.hash_strings(chunked).null_count == texts.count(None)


def test_buffers_give_the_same_and_may_end_anywhere() -> None:
    texts = [b"one", b"", b"twelve bytes", b"x"]
    data = np.frombuffer(b"".join(texts), np.uint8)  # not one byte more than the strings
    offsets = np.cumsum([0, *map(len, texts)])
    for kind in (np.int32, np.int64):
        found = kernels.hash_string_buffers(data, offsets.astype(kind), np.array([0b1011], np.uint8), null=7)
        assert found.hashes.tolist() == [slow.hash_bytes(texts[0]), slow.hash_bytes(b""), 7, slow.hash_bytes(b"x")]
        assert found.null_count == 1


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    column = pa.array([None if at % 7 == 0 else f"id {at}" for at in range(60_000)])
    alone, many = kernels.hash_strings(column), kernels.hash_strings(column, threads=3)
    assert np.array_equal(alone.hashes, many.hashes)
    assert alone.null_count == many.null_count == 8572


def test_millions_of_near_equal_strings_never_collide() -> None:
    names = ["", "feature_00000_", "a prefix that is longer than sixteen bytes:"]
    numbers = pa.array(np.arange(1_000_000)).cast(pa.string())
    columns = [compute.binary_join_element_wise(name, numbers, "") for name in names]
    hashes = kernels.hash_strings(pa.chunked_array(columns)).hashes
    assert (np.diff(np.sort(hashes)) != 0).all()
    for quarter in range(4):
        shares = np.bincount(hashes.view(np.uint16)[quarter::4], minlength=2**16)
        expected = hashes.size / 2**16
        chi_square = float(((shares - expected) ** 2).sum() / expected)
        assert abs(chi_square - 2**16) < 6 * (2 * 2**16) ** 0.5


@pytest.mark.parametrize("length", [3, 8, 9, 16, 23])
def test_every_bit_of_a_string_moves_half_of_the_hash(length: int) -> None:
    rng = np.random.default_rng(length)
    count = 4000
    texts = rng.integers(0, 256, (count, length), np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * length
    base = kernels.hash_string_buffers(texts.ravel(), offsets).hashes
    worst = 0.0
    for bit in range(8 * length):
        flipped = texts.copy()
        flipped[:, bit // 8] ^= np.uint8(1 << bit % 8)
        moved = base ^ kernels.hash_string_buffers(flipped.ravel(), offsets).hashes
        shares = np.unpackbits(moved.view(np.uint8).reshape(count, 8), axis=1).mean(axis=0)
        worst = max(worst, float(np.abs(shares - 0.5).max()))
    assert worst < 0.05  # six standard deviations of 4000 coin flips


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (["a", "b"], "array is a list: give a pyarrow Array or ChunkedArray"),
        (pa.array([1, 2]), "array is of int64: cast it to one of string, large_string, binary, large_binary"),
        (pa.array(["a"]).dictionary_encode(), "array is of dictionary"),
    ],
)
def test_what_is_not_a_column_of_strings_is_refused(array: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kernels.hash_strings(array)


def test_bad_buffers_and_numbers_are_refused() -> None:
    data, offsets = np.zeros(4, np.uint8), np.array([0, 2, 4], np.int32)
    faults: list[tuple[tuple[Any, ...], str]] = [
        ((data, np.array([0, 3, 2], np.int32)), r"offsets\[2\] is 2 after 3: must never fall"),
        ((data, np.array([0, 2, 5], np.int64)), "offsets run from 0 to 5: must stay within the data, 0 to 4"),
        ((data, np.array([-1, 2, 4], np.int32)), "offsets run from -1 to 4"),
        ((data, offsets[:0]), "offsets hold 0, expected at least"),
        ((data, offsets.astype(np.uint32)), "offsets has type uint32: must be int32 or int64"),
        ((data, offsets, np.zeros(0, np.uint8)), "validity is too short for 2 strings"),
        ((data.view(np.int8), offsets), "data has type int8: must be uint8"),
        ((data, offsets, None, -1), "seed=-1: must be 0 or more and below 2\\^64"),
        ((data, offsets, None, 0, 2**64), "null=18446744073709551616: must be 0 or more"),
    ]
    for arguments, sentence in faults:
        with pytest.raises(InputError, match=f"hash_strings: {sentence}"):
            kernels.hash_string_buffers(*arguments)


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="pyarrow is missing: install it, or use hash_string_buffers"):
        kernels.hash_strings(None)
