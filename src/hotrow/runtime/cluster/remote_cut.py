"""The rows of all shards at one moment. Every shard writes its own part, where it sees the folder."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from hotrow.checkpoint.manifest import SavedTableFacts, number_of
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.rows import Watch
from hotrow.config import Table
from hotrow.disk import written
from hotrow.errors import FileError, HotrowError, InputError
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import CutMade, CutRows, CutWritten, EndCut, WriteCut
from hotrow.transport.tensors import joined


class RemoteCut:
    """A cut on every shard. `remote_cut` begins it, in the thread of the training loop; another one may write it."""

    frozen = True  # rows that change are copied first

    def __init__(self, roles: Roles, specs: Mapping[str, Table], where: str, size: int, *, delta: bool) -> None:
        self.delta, self.bytes = delta, size
        self._roles, self._specs, self._where = roles, specs, where
        self._loop_thread = threading.get_ident()

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        """Let all shards write; the facts of each table, and of each file."""
        number = number_of(place.path.rpartition("/")[2])
        assert number is not None
        asked = self._roles.request_all(self._roles.shards, WriteCut(self._where, number), deadline=False)
        parts, faults = [], []
        for name, each in zip(self._roles.shards, asked, strict=True):  # all of them: then no shard writes any more
            try:
                answer = self._roles.answer(each, in_loop=self._in_loop)
            except RemoteFault as fault:
                faults.append(str(fault))
            else:
                watch(answer.of(CutWritten, name).bytes)
                parts.append(json.loads(joined(answer.frames)))
        if faults:  # the run goes on, and tries again later
            raise FileError("; ".join(faults))
        files = {file: SavedFile(**facts) for part in parts for file, facts in part["files"].items()}
        there = place.files()
        for file, facts in files.items():
            if there.get(file) != facts.bytes:
                message = f"{place.name}: a shard wrote {file}, and this process does not find it"
                raise FileError(f"{message}: save to a folder that all hosts share, or to an object store")
        return {name: self._merged(name, [part["tables"][name] for part in parts]) for name in self._specs}, files

    def close(self, *, saved: bool) -> None:
        """Forget the moment on all shards."""
        end_cut(self._roles, saved=saved, in_loop=self._in_loop)

    @property
    def _in_loop(self) -> bool:
        return threading.get_ident() == self._loop_thread

    def _merged(self, name: str, parts: list[dict[str, Any]]) -> SavedTableFacts:
        """The table's own settings: a shard has its share of the capacity."""
        first = SavedTableFacts.model_validate(parts[0])
        every = [SavedTableFacts.model_validate(part) for part in parts]
        return first.model_copy(
            update={
                "settings": self._specs[name].model_dump(mode="json"),
                "rows": sum(part.rows for part in every),
                "shards": tuple(shard for part in every for shard in part.shards),
            }
        )


def remote_cut(roles: Roles, specs: Mapping[str, Table], place: Place, *, delta: bool) -> RemoteCut | None:
    """Begin a cut on all shards, at rest; None where a shard cannot see the driver's files.

    InputError where a shard does not know all that changed since the cut before.
    """
    with _probe(place) as probe:
        asked = [
            roles.rpc.request(name, CutRows(incarnation, delta, place.uri, probe))
            for name, incarnation in zip(roles.shards, roles.incarnations(), strict=True)
        ]
        try:
            made = [roles.answer(each).of(CutMade, name) for name, each in zip(roles.shards, asked, strict=True)]
        except HotrowError as error:
            end_cut(roles, saved=False)
            if isinstance(error, RemoteFault) and error.kind == "input":
                raise InputError(str(error)) from None
            raise
    if not all(each.sees_probe for each in made):
        end_cut(roles, saved=False)
        return None
    return RemoteCut(roles, specs, place.uri, sum(each.bytes for each in made), delta=delta)


def end_cut(roles: Roles, *, saved: bool, in_loop: bool = True) -> None:
    """Forget the cut on all shards; one that is lost has forgotten it."""
    for each in roles.request_all(roles.shards, EndCut(saved)):
        with suppress(HotrowError):
            roles.answer(each, in_loop=in_loop)


@contextmanager
def _probe(place: Place) -> Iterator[str]:
    """A file that shows whether a shard sees the same folder."""
    name = f"probe-{uuid4().hex}"
    with written(Path(place.name), "the checkpoint"), place.write(name) as sink:
        sink.write(b"hotrow")
    try:
        yield name
    finally:
        with suppress(OSError):
            place.delete_file(name)
