"""Names of a checkpoint that a load maps or skips: those of tables, of dense layers, and of single tensors. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from hotrow.errors import InputError
from hotrow.spec import did_you_mean

TABLES, MODEL = "tables.", "model."  # in front of a name that both a table and a layer have


class Renames:
    """New names by old ones. Of several that match a tensor, the longest holds."""

    def __init__(
        self, who: str, renames: Mapping[str, str], skip: Iterable[str], tables: Iterable[str], tensors: Iterable[str]
    ) -> None:
        """InputError where a name is not in the checkpoint `who`, is ambiguous, or is both mapped and skipped."""
        self._who, self._known_tables, self._known_tensors = who, frozenset(tables), frozenset(tensors)
        self._tables: dict[str, str | None] = {}
        self._layers: dict[str, str | None] = {}
        for old, new in [*renames.items(), *((name, None) for name in skip)]:
            option = f"--skip {old}" if new is None else f"--map {old}={new}"
            prefix, name = self._found(option, old)
            asked = self._tables if prefix == TABLES else self._layers
            if name in asked:
                raise InputError(f"{option}: {name!r} is mapped or skipped by another option: give one of them")
            asked[name] = new if new is None or name == old else new.removeprefix(prefix)

    def table(self, name: str) -> str | None:
        """The name here of a saved table; None: it is left out."""
        return self._tables.get(name, name)

    def tensor(self, name: str) -> str | None:
        """The name here of a saved tensor; None: it is left out."""
        asked = max((each for each in self._layers if is_part(name, each)), key=len, default=None)
        if asked is None:
            return name
        new = self._layers[asked]
        return None if new is None else new + name[len(asked) :]

    def renamed_layers(self) -> Iterator[tuple[str, str]]:
        """Old and new names, as they were asked for."""
        return ((old, new) for old, new in self._layers.items() if new is not None and new != old)

    def _found(self, option: str, name: str) -> tuple[str, str]:
        found = []
        for prefix, is_known in ((TABLES, self._is_table), (MODEL, self._is_layer)):
            bare = [each for each in dict.fromkeys((name, name.removeprefix(prefix))) if is_known(each)]
            found += [(prefix, each) for each in bare[:1]]
        if not found:
            known = [*self._known_tables, *self._known_tensors, *map(layer_of, self._known_tensors)]
            message = f"checkpoint {self._who} has no table or dense layer {name!r}{did_you_mean(name, known)}"
            raise InputError(f"{option}: {message}: `hotrow inspect` lists what it has")
        if len(found) > 1:
            ways = " or ".join(prefix + each for prefix, each in found)
            raise InputError(f"{option}: {name!r} names a table and a dense layer: write {ways}")
        return found[0]

    def _is_table(self, name: str) -> bool:
        return name in self._known_tables

    def _is_layer(self, name: str) -> bool:
        return any(is_part(tensor, name) for tensor in self._known_tensors)


def is_part(tensor: str, layer: str) -> bool:
    """Whether a tensor is this one, or one of this layer."""
    return tensor == layer or tensor.startswith(f"{layer}.")


def layer_of(tensor: str) -> str:
    """The layer of a tensor; a tensor without one is its own."""
    return tensor.rpartition(".")[0] or tensor


def remedy(name: str) -> str:
    """What to do about a table or layer that nothing here takes."""
    return f"leave it out with --skip {name}, or give its name here with --map {name}=NAME"
