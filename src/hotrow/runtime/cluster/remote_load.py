"""The rows of a checkpoint on a cluster. Every shard reads its own part, where it sees the folder."""

import logging
from collections.abc import Callable, Mapping

from hotrow.checkpoint.loaded_rows import LoadedTable
from hotrow.checkpoint.manifest import DENSE
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.row_loader import LocalRowLoader
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.table_fitting import TablePlan
from hotrow.errors import InputError
from hotrow.runtime.cluster.roles import Roles
from hotrow.store import SavedTable
from hotrow.transport.client import Answer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import CheckRows, LoadRows, RowsChecked, RowsLoaded, TableLoaded, TableSource
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


class RemoteRowLoader:
    """Loads one checkpoint: `verify`, then `load`."""

    def __init__(self, roles: Roles, tiers: Mapping[str, SavedTable]) -> None:
        self.tiers = tiers
        self._roles = roles
        self._by_driver: LocalRowLoader | None = None  # where a shard does not see the files

    def verify(self, found: SavedCheckpoint, watch: Watch) -> None:
        """Compare all checksums: of dense tensors here, of rows on the shards, each file once."""
        found.verify(watch, lambda manifest: [DENSE] if manifest.has_dense else [])
        checked = {name: answer.of(RowsChecked, name) for name, answer in self._ask(found, CheckRows).items()}
        if blind := [str(name) for name, each in checked.items() if not each.sees_files]:
            place = found.place.parent.name
            message = (
                f"{', '.join(blind)}: checkpoint {place} cannot be read from there, so this process reads all rows"
            )
            way = "keep checkpoints in a folder that all hosts share, or in an object store"
            _log.warning("%s, and counts of ids that wait for admission start at 0: %s", message, way)
            self._by_driver = LocalRowLoader(self.tiers)
            self._by_driver.verify(found, watch)
        else:
            watch(sum(each.bytes for each in checked.values()))

    def load(
        self, found: SavedCheckpoint, plans: Mapping[str, TablePlan], changing: Callable[[], object]
    ) -> Mapping[str, LoadedTable]:
        """Let all shards replace their rows."""
        if self._by_driver is not None:
            return self._by_driver.load(found, plans, changing)
        changing()
        sources = tuple(_source(name, plan) for name, plan in plans.items())
        answers = self._ask(found, LoadRows, sources)
        parts = [each for name, answer in answers.items() for each in answer.of(RowsLoaded, name).tables]
        return {name: _merged([each for each in parts if each.table == name]) for name in self.tiers}

    def _ask(
        self, found: SavedCheckpoint, kind: type[CheckRows | LoadRows], *more: tuple[TableSource, ...]
    ) -> dict[RoleId, Answer]:
        """The replies of all shards; InputError with the sentences of those that could not."""
        where, number, digest = found.place.parent.uri, found.manifest.number, found.chain[-1].digest
        incarnations = zip(self._roles.shards, self._roles.incarnations(), strict=True)
        asked = {
            name: self._roles.rpc.request(name, kind(incarnation, where, number, digest, *more), deadline=False)
            for name, incarnation in incarnations
        }
        answers: dict[RoleId, Answer] = {}
        faults = []
        for name, each in asked.items():  # all of them: then no shard reads any more
            try:
                answers[name] = self._roles.answer(each)
            except RemoteFault as fault:
                faults.append(str(fault))
        if faults:
            raise InputError("; ".join(faults))
        return answers


def _source(name: str, plan: TablePlan) -> TableSource:
    return TableSource(name, plan.saved, plan.rows, plan.state, plan.fields, plan.seen_now, plan.ticks, plan.counts)


def _merged(parts: list[TableLoaded]) -> LoadedTable:
    return LoadedTable(
        sum(each.rows for each in parts),
        sum(each.too_large for each in parts),
        counts_left=any(each.counts_left for each in parts),
    )
