"""Sizes in bytes as people write them: what is read, and a sentence for what is no size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow import AtLeast, ConfigError, Table
from hotrow.sizes import MOST, number_text, parse_bytes


def refusal(capacity: str) -> str:
    with pytest.raises(ConfigError) as refused:
        Table(dim=4, capacity=capacity)
    return str(refused.value)


SIZES = {
    "1B": 1,
    "1 KB": 1_000,
    "1.5 kB": 1_500,  # as sizes are printed
    "2MB": 2_000_000,
    "8GB": 8 * 10**9,
    "3TB": 3 * 10**12,
    "1KiB": 1024,
    "512MiB": 512 * 2**20,
    " 1.5 GiB ": 3 * 2**29,
    "0.25TiB": 2**38,
    "2.5B": 2,  # rounded down
    "0.1KB": 100,  # exactly, not through a float
    "0.001KB": 1,
    "007B": 7,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_are_read_as_written(text: str, size: int) -> None:
    assert parse_bytes(text) == size
    table = Table(dim=4, capacity=text)
    assert (table.capacity, table.capacity_bytes, table.capacity_rows) == (text, size, None)


@pytest.mark.parametrize(
    "text",
    ["", "GB", "8", "8 gb", "8Gb", "8XB", "-8GB", "+8GB", "8,5GB", "8.GB", ".5GB", "1e9B", "8GB\0", "8GB8", "nanB"],
)  # fmt: skip
def test_text_that_is_no_size_is_refused_with_the_units(text: str) -> None:
    told = refusal(text)
    assert told.startswith(f"Table.capacity={text!r}: is not a size")
    assert "GiB" in told
    with pytest.raises(ConfigError, match=r"AtLeast\.filter=.* is not a size"):
        AtLeast(count=3, filter=text)


@pytest.mark.parametrize("text", ["0B", "0GB", "0.9B", "0.0009KB", f"{MOST + 1}B", "5000000TiB", "9" * 400 + "GB"])
def test_sizes_of_nothing_or_of_too_much_are_refused(text: str) -> None:
    assert "must be from 1 to" in refusal(text)


def test_the_largest_size_is_accepted() -> None:
    assert Table(dim=4, capacity=f"{MOST}B").capacity_bytes == MOST


@given(number=st.integers(1, 10**6), unit=st.sampled_from(["B", "KB", "MiB", "GB", "TiB"]))
def test_sizes_grow_with_their_number(number: int, unit: str) -> None:
    assert parse_bytes(f"{number}{unit}") == number * parse_bytes(f"1{unit}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_000_000, "1,000,000"), (1e6, "1,000,000"), (0.1 + 0.2, "0.3"), (8.25e11, "825,000,000,000"),
        (1e-6, "0.000001"), (0.0, "0"), (-1, "-1"), (1e300, "1e+300"), (float("nan"), "nan"), (0.05, "0.05"),
    ],
)  # fmt: skip
def test_numbers_in_messages_are_as_people_write_them(value: float, text: str) -> None:
    assert number_text(value) == text
