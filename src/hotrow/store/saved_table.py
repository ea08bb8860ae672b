"""What a checkpoint and a report need of a table, wherever its rows are."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from hotrow.config import Table
from hotrow.store.arrays import ArrayLike
from hotrow.store.rows import Rows, Stats


class SavedTable(Protocol):
    """All rows of a table, whole."""

    @property
    def table(self) -> Table: ...

    @property
    def dim(self) -> int: ...

    @property
    def state_dim(self) -> int: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    @property
    def capacity_rows(self) -> int: ...

    def __len__(self) -> int: ...

    def export(self, rows: int = ...) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`."""

    def clear(self) -> None:
        """Remove all rows."""

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
    ) -> Any:
        """Insert or overwrite whole rows."""

    def stats(self) -> Stats:
        """Counts and bytes."""
