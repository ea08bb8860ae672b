"""Small values that every layer shares."""

from typing import Literal, TypeAlias, cast, get_args

from hotrow.errors import InputError

RoleKind: TypeAlias = Literal["shard", "trainer", "embedding worker", "loader"]
Values: TypeAlias = Literal["fp32", "fp16-scaled"]  # the wire format of rows and gradients
Security: TypeAlias = Literal["off", "key", "curve"]  # of the connections of a cluster


class RoleId(str):
    """A role of a cluster by kind and number. Its text, as "trainer 0", is its name on the wire and in files.

    >>> RoleId("trainer", 0).kind, RoleId("trainer", 0).number
    ('trainer', 0)
    """

    kind: RoleKind
    number: int
    __slots__ = ("kind", "number")

    def __new__(cls, kind: RoleKind, number: int) -> "RoleId":
        made = super().__new__(cls, f"{kind} {number}")
        made.kind, made.number = kind, number
        return made

    def __getnewargs__(self) -> tuple[RoleKind, int]:  # type: ignore[override]
        return self.kind, self.number

    @classmethod
    def parse(cls, text: str) -> "RoleId":
        """From a file, or from what a user typed."""
        kind, _, number = text.rpartition(" ")
        if kind not in get_args(RoleKind) or not number.isdecimal():
            example = " or ".join(f"'{each} 0'" for each in get_args(RoleKind))
            raise InputError(f"{text!r}: is not the name of a role; names are as {example}")
        return cls(cast(RoleKind, kind), int(number))
