"""Updates of a shard's rows, by the rules of the mode: how parts are averaged, and how late gradients decay."""

from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from hotrow.client import LocalTables
from hotrow.client.aggregate import Average, RowGradients, RowPart
from hotrow.errors import ConfigError
from hotrow.server.order_log import OrderLog
from hotrow.server.partial_step import PartialStep
from hotrow.staleness import Staleness
from hotrow.store import Applied
from hotrow.transport.messages import ApplyOrder, OrderPart


class RowUpdates:
    """The rules of the open mode, and the updates that follow them."""

    def __init__(self, tables: LocalTables, orders: OrderLog) -> None:
        self._tables, self._orders = tables, orders
        self.average: Average = "batch"
        self.late: Staleness | None = None

    @property
    def by_version(self) -> bool:
        """Whether gradients need the versions of their rows."""
        return self.late is not None and self.late.by == "version"

    def set_rules(self, average: Average, staleness: str | None) -> None:
        """`staleness`: the policy of a mode, as JSON."""
        self.average, self.late = average, None if staleness is None else _staleness(staleness)

    def apply(self, parts: Sequence[RowPart], step: int, samples: int, lr_scale: float) -> dict[str, int]:
        """Update all rows of these parts; returns what was not done, by the names of its counters."""
        applied = self._tables.apply(
            parts,
            step=step,
            samples=samples,
            lr_scale=lr_scale,
            average=self.average,
            late=self.late,
            staleness=self._orders.lateness,
        )
        return self.count(applied)

    def begin(self, order: ApplyOrder, parts: Sequence[RowPart]) -> PartialStep:
        """The update of a step, for some of its rows now and for the others when it is ordered."""
        return PartialStep(
            self._tables, order, parts, average=self.average, late=self.late, staleness=self._orders.lateness
        )

    def count(self, applied: Mapping[str, Applied]) -> dict[str, int]:
        """Count what updates have not done, by table; returns the sums."""
        each = applied.values()
        sums = {
            "refused": sum(table.refused for table in each),
            "weightless": sum(table.weightless for table in each),
            "missing": sum(table.absent + table.unadmitted for table in each),
        }
        self._orders.count(sums)
        return sums


def row_part(apply: ApplyOrder, part: OrderPart, rows: Mapping[str, RowGradients]) -> RowPart:
    """One push of an order."""
    alone = apply.group == "embedding"  # rows that were looked up before the step of their token
    return RowPart(rows, part.samples, part.pulled_step if alone else part.token, part.weight if alone else 1.0)


def _staleness(text: str) -> Staleness:
    try:
        settings = from_json(text, allow_inf_nan=False)  # json.loads would recurse as deep as a peer sends
    except ValueError as error:
        raise ConfigError(f"staleness={text[:100]!r}: is not JSON, {error}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"staleness={text[:100]!r}: must be an object with the settings of a Staleness")
    return Staleness(**settings)
