"""The base and the number types of all headers.

Numbers are bounded here, so that a decoded header cannot announce more memory than a message may hold.
"""

from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**31)]  # of rows, samples, floats
Number = Annotated[int, Meta(ge=0, le=2**62)]  # of grants, steps, orders: they only ever rise
Name = Annotated[str, Meta(min_length=1, max_length=200)]
SampleId = Annotated[int, Meta(ge=0)]  # 64 bits: the first byte names an embedding worker, the others are the grant


class Header(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all headers."""
