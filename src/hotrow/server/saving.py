"""A shard writes its part of a checkpoint: its rows of one moment, in a thread beside the one that serves."""

import json
import logging
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

_log = logging.getLogger("hotrow.server")


class ShardSaving:
    """The cut of a shard, one at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._cut: LocalCut | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._abandoned: LocalCut | None = None  # by a driver that does not wait

    def track_changes(self) -> None:
        """From the next cut on, cuts of changes are possible."""
        track_changes(self._shard.tables.tiers)

    def begin(self, wanted: CutRows) -> CutMade:
        """Hold the rows of this moment."""
        if not Place.of(wanted.where).has(wanted.probe):
            return CutMade(sees_probe=False)
        if self._thread is not None:
            raise InputError(f"shard {self._shard.number} still writes the checkpoint before: save again later")
        self.end(saved=False)  # of a driver that did not end its own
        self._shard.tables.settle()
        shard = self._shard
        self._cut = LocalCut(shard.tables.tiers, delta=wanted.delta, shard=shard.number, shards=shard.shards)
        return CutMade(sees_probe=True, bytes=self._cut.bytes)

    def write(self, request: Request, wanted: WriteCut) -> None:
        """Start writing; the thread replies."""
        if self._cut is None or self._thread is not None:
            message = f"shard {self._shard.number} does not hold the rows of that moment"
            raise InputError(f"{message}: it was started again since, or no save has begun: save again")
        folder = Place.of(wanted.where).folder(folder_of(wanted.number))
        name = f"checkpoint-{self._shard.number}"
        self._thread = threading.Thread(target=self._write, args=(self._cut, folder, request), name=name, daemon=True)
        self._thread.start()

    def end(self, *, saved: bool) -> None:
        """Forget the cut; while it is written, its thread does that at the end."""
        with self._ending:
            cut, self._cut = self._cut, None
            if self._thread is not None:
                self._abandoned = cut
            elif cut is not None:
                cut.close(saved=saved)

    def _write(self, cut: LocalCut, folder: Place, request: Request) -> None:
        reply, frames = _written(cut, folder)
        with self._ending:  # before the reply: the end of the cut, or the next one, may follow it at once
            self._thread = None
            if self._abandoned is not None:
                self._abandoned.close(saved=False)
                self._abandoned = None
        request.reply(reply, frames)


def _written(cut: LocalCut, folder: Place) -> tuple[CutWritten | Fault, list[bytes]]:
    """Write all files; the reply to the driver."""
    try:
        tables, files = cut.write(folder, lambda _: None)
    except HotrowError as error:
        return fault_of(error), []
    except OSError as error:
        return Fault.of("input", f"{folder.name}: a part of the checkpoint cannot be written: {error}"), []
    except Exception as error:
        _log.exception("an error in writing a checkpoint")
        return Fault.of("internal", f"an error in writing a checkpoint: {type(error).__name__}: {error}"), []
    facts = {
        "tables": {name: each.model_dump(mode="json") for name, each in tables.items()},
        "files": {name: asdict(each) for name, each in files.items()},
    }
    return CutWritten(sum(each.bytes for each in files.values())), [json.dumps(facts).encode()]
