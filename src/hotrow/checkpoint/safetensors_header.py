"""Names, types and shapes of the tensors of a file in the format of safetensors, from its header alone."""

import json
from dataclasses import dataclass

from hotrow.checkpoint.manifest import DENSE
from hotrow.checkpoint.place import Place
from hotrow.errors import InputError

LENGTH_BYTES = 8  # little-endian, in front of the header
HEADER_BYTES_MOST = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """One tensor."""

    name: str
    type: str  # as the format names it: F32, I64
    shape: tuple[int, ...]
    bytes: int


def tensors_of(place: Place, file: str = DENSE) -> list[TensorFacts]:
    """All tensors of a file by name; InputError where the header cannot be read."""
    with place.open(file) as source:
        length = int.from_bytes(source.read(LENGTH_BYTES), "little")
        if not 2 <= length <= HEADER_BYTES_MOST:
            raise _damaged(place, file, f"its header has {length:,} bytes")
        data = source.read(length)
    try:
        found = json.loads(data)
        return [
            TensorFacts(name, each["dtype"], tuple(each["shape"]), each["data_offsets"][1] - each["data_offsets"][0])
            for name, each in sorted(found.items())
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _damaged(place, file, f"its header is not that of safetensors ({error!r})") from None


def _damaged(place: Place, file: str, why: str) -> InputError:
    return InputError(f"checkpoint {place.name}: {file} cannot be read: {why}: take another one")
