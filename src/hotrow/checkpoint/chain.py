"""Which checkpoints of a folder belong together: a full one and the deltas that build on it. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from hotrow.checkpoint.manifest import Base, folder_of
from hotrow.errors import InputError


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A checkpoint as the others of its folder see it."""

    number: int
    digest: str  # of its manifest
    base: Base | None  # None: it is full


def chain_of(find: Callable[[int], ChainLink | None], number: int, name: str) -> list[ChainLink]:
    """The full checkpoint and the deltas up to `number`, in order; `find` gives those of the folder `name` by number.

    InputError names the one that is missing, stands under another's number, or is not what the next one builds on.
    """
    chain: list[ChainLink] = []
    wanted: int | None = number
    while wanted is not None:
        link = find(wanted)
        if link is None:
            raise InputError(f"checkpoint {name}: {_missing(wanted, chain)}")
        if link.number != wanted:
            message = f"{folder_of(wanted)} holds the manifest of number {link.number}"
            raise InputError(f"checkpoint {name}: {message}: files were moved or copied by hand: take another one")
        if chain and (base := chain[-1].base) is not None and base.digest != link.digest:
            message = f"{folder_of(wanted)} is not the one that {folder_of(chain[-1].number)} was saved on"
            raise InputError(f"checkpoint {name}: {message}: it was replaced: take a full checkpoint before it")
        if link.base is not None and link.base.number >= link.number:
            message = f"{folder_of(wanted)} builds on number {link.base.number}, which is not before it"
            raise InputError(f"checkpoint {name}: {message}: take another one")
        chain.append(link)
        wanted = None if link.base is None else link.base.number
    return chain[::-1]


def superfluous(links: Mapping[int, ChainLink], keep: int) -> list[int]:
    """Numbers to remove so that the newest `keep` checkpoints and all that these build on stay.

    The newest comes first: a delta goes before what it builds on. None goes where one that stays builds on what is
    not there: an older one may then be the only one that can be loaded.
    """
    needed: set[int] = set()
    for newest in sorted(links)[-keep:]:
        at: int | None = newest
        while at is not None and at not in needed:
            if at not in links:
                return []
            needed.add(at)
            base = links[at].base
            at = None if base is None else base.number
    return sorted(set(links) - needed, reverse=True)


def unfinished(folders: Collection[int], links: Collection[int]) -> Sequence[int]:
    """Numbers of folders without a manifest: a save that died has left them."""
    return sorted(set(folders) - set(links))


def _missing(number: int, chain: Sequence[ChainLink]) -> str:
    if not chain:
        return f"there is no number {number} in it: take one that is there"
    return f"{folder_of(number)} is missing, on which {folder_of(chain[-1].number)} builds: take a full one before it"
