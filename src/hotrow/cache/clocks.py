"""The rules of per-embedding clocks (HET), for one row or, element by element, for arrays of rows.

A row on the server has a clock c_g that counts updates. A worker that fetches the row keeps c_g as its start clock c_s;
its current clock c_c is c_s plus its own updates since. With a staleness bound s a cached row may be read where

    c_c <= c_s + s    the worker is not too far ahead of what it fetched: it decides alone
    c_g <= c_c + s    the others are not too far ahead of the worker: the server decides, from the key and c_c

The first rule and c_s <= c_g give c_c <= c_g + s. The server checks this too: a row that it evicted and made again has
a lower clock. So c_g - s <= c_c <= c_g + s holds at each check that passes.

Numbers are int, or arrays of int64 with an entry for each row.
"""

from typing import Any, Literal, TypeAlias

from hotrow.errors import ConfigError

ClockRule: TypeAlias = Literal["max", "additive"]
Numbers: TypeAlias = Any  # an int, or an array: the rules use operators that both have
Flags: TypeAlias = Any  # likewise of bool


def must_write_back(present: Flags, start: Numbers, current: Numbers, staleness: int) -> Flags:
    """Whether a row is in the cache and too far ahead of its start: it is written back and fetched."""
    return present & (current > start + staleness)


def may_ask(present: Flags, start: Numbers, current: Numbers, staleness: int) -> Flags:
    """Whether a row is in the cache and valid as far as the worker knows: the server checks its current clock.

    A row that is neither this nor to be written back is absent, and is fetched.
    """
    return present & (current <= start + staleness)


def is_valid(server: Numbers, current: Numbers, staleness: int) -> Flags:
    """The server's check of a cached row."""
    return (server <= current + staleness) & (current <= server + staleness)


def after_write_back(rule: ClockRule, server: Numbers, current: Numbers, updates: Numbers) -> Numbers:
    """The server's clock after a write-back of so many updates that ends at the worker's clock `current`.

    "max" counts updates that several workers make at the same time once, as the paper does; "additive" counts each.
    """
    match rule:
        case "max":
            ahead = current > server
            return current * ahead + server * (1 - ahead)
        case "additive":
            return server + updates
    raise ConfigError(f"clock={rule!r}: must be 'max' or 'additive'")
