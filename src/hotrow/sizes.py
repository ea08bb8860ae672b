"""Sizes in bytes as people write them ("8GB", "512MiB"), numbers in messages, whole numbers, names fit for files."""

import math
import operator
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator

UNITS = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
MOST = 2**62  # rows or bytes; more would not fit the store's numbers
DIGITS = 12  # of a number in a message: the rest is binary rounding
PLAIN = 1e-9, 1e15  # magnitudes that are written without an exponent

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
_FOLDER_NAME = re.compile(r"(?!-)(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


# Not pydantic's ByteSize: it reads through a float ("9007199254740993B" is one byte less), takes "8Gb" for bytes and
# "8" and "0GB" for sizes, and saves a number where the config has "8GB".
def parse_bytes(text: str) -> int:
    """The bytes that `text` names, rounded down; ValueError with a remedy where it names none."""
    found = _SIZE.fullmatch(text)
    if found is None or found[2] not in UNITS:
        raise ValueError(f"is not a size: write a number and a unit ({', '.join(UNITS)}), as '8GB' or '1.5GiB'")
    size = int(Decimal(found[1]) * UNITS[found[2]])
    if not 1 <= size <= MOST:
        raise ValueError(f"is {size:,} bytes: must be from 1 to {MOST:,} bytes")
    return size


def whole(value: Any) -> int:
    """`value` as an int; a boolean, a float or a text is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        quoted = isinstance(value, str) and value.strip().isdecimal()
        raise ValueError(f"must be a whole number{', write it without quotes' if quoted else ''}")
    return operator.index(value)


def whole_or_size(value: Any) -> int | str:
    """A whole number from 1, or a text that names a size: kept as it was written, so that it is saved like that."""
    if isinstance(value, str):
        parse_bytes(value)
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("must be a whole number, or a size in bytes such as '8GB' or '512MiB'")
    number = operator.index(value)
    if not 1 <= number <= MOST:
        raise ValueError(f"must be from 1 to {MOST:,}")
    return number


def only_size(value: Any) -> str:
    """A text that names a size, kept as it was written."""
    if not isinstance(value, str):
        raise ValueError("must be a size in bytes such as '200GB'")
    parse_bytes(value)
    return value


def fits_file_name(name: str) -> bool:
    """Whether a name can be a part of a segment's file name on any file system."""
    return _FILE_NAME.fullmatch(name) is not None


def fits_folder_name(name: str) -> bool:
    """Whether a name can be that of a folder of its own, also as an argument of a command."""
    return _FOLDER_NAME.fullmatch(name) is not None


def size_text(size: int) -> str:
    """Bytes as people read them: "33.6 MB"."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def number_text(value: float) -> str:
    """A number in a message: thousands separators, no exponent, no digits of binary rounding."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value) or (value and not PLAIN[0] <= abs(value) < PLAIN[1]):
        return f"{value:.3g}"
    return f"{Decimal(f'{value:.{DIGITS}g}'):,f}"


FILE_NAME_RULE = "1 to 64 of the letters A-Z and a-z, digits, '.', '_' and '-'"
FOLDER_NAME_RULE = f"{FILE_NAME_RULE}, no '-' in front, and neither '.' nor '..'"

Whole = Annotated[int, BeforeValidator(whole)]
WholeOrSize = Annotated[int | str, BeforeValidator(whole_or_size)]
Size = Annotated[str, BeforeValidator(only_size)]
