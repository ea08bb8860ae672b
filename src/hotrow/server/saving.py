"""A shard writes its part of a checkpoint: its rows of one moment, in a thread beside the one that serves."""

import json
import threading
from dataclasses import asdict

from hotrow.checkpoint.local_cut import LocalCut, track_changes
from hotrow.checkpoint.manifest import folder_of
from hotrow.checkpoint.place import Place
from hotrow.errors import HotrowError, InputError
from hotrow.server.shard import Shard
from hotrow.transport.faults import fault_of
from hotrow.transport.messages import CutMade, CutRows, CutWritten, Fault, WriteCut
from hotrow.transport.request import Request


class ShardSaving:
    """The cut of a shard, one at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._cut: LocalCut | None = None
        self._thread: threading.Thread | None = None

    def track_changes(self) -> None:
        """From the next cut on, cuts of changes are possible."""
        track_changes(self._shard.tables.tiers)

    def begin(self, wanted: CutRows) -> CutMade:
        """Hold the rows of this moment."""
        if not Place.of(wanted.where).has(wanted.probe):
            return CutMade(sees_probe=False)
        self.end(saved=False)  # of a driver that did not end its own
        self._shard.tables.settle()
        shard = self._shard
        self._cut = LocalCut(shard.tables.tiers, delta=wanted.delta, shard=shard.number, shards=shard.shards)
        return CutMade(sees_probe=True, bytes=self._cut.bytes)

    def write(self, request: Request, wanted: WriteCut) -> None:
        """Start writing; the thread replies."""
        if self._cut is None or self._thread is not None:
            raise InputError(f"shard {self._shard.number} has no cut to write: begin one first")
        folder = Place.of(wanted.where).folder(folder_of(wanted.number))
        name = f"checkpoint-{self._shard.number}"
        self._thread = threading.Thread(target=_write, args=(self._cut, folder, request), name=name, daemon=True)
        self._thread.start()

    def end(self, *, saved: bool) -> None:
        """Forget the cut, once nothing reads it any more."""
        if self._thread is not None:
            self._thread.join()
        cut, self._cut, self._thread = self._cut, None, None
        if cut is not None:
            cut.close(saved=saved)


def _write(cut: LocalCut, folder: Place, request: Request) -> None:
    try:
        tables, files = cut.write(folder, lambda _: None)
    except HotrowError as error:
        request.reply(fault_of(error))
    except OSError as error:
        request.reply(Fault.of("input", f"{folder.name}: a part of the checkpoint cannot be written: {error}"))
    except BaseException as error:
        request.reply(Fault.of("internal", f"an error in writing a checkpoint: {type(error).__name__}: {error}"))
        raise
    else:
        facts = {
            "tables": {name: each.model_dump(mode="json") for name, each in tables.items()},
            "files": {name: asdict(each) for name, each in files.items()},
        }
        size = sum(each.bytes for each in files.values())
        request.reply(CutWritten(size), [json.dumps(facts).encode()])
