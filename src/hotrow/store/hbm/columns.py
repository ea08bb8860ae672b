"""What rows hold, apart from their keys: values, optimizer state and counters, by slot."""

from collections.abc import Iterable

import torch
from torch import Tensor

from hotrow.kernels.launch import launch
from hotrow.kernels.update_rule import RowFields, signed
from hotrow.kernels.update_tile import TableRows
from hotrow.store.hbm import row_kernels
from hotrow.store.hbm.rows import HbmRows
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.table import BLOCK, WARPS, WIDTH_MAX, blocks, tile_width

KINDS = {"uniform": row_kernels.UNIFORM, "normal": row_kernels.NORMAL, "constant": row_kernels.CONSTANT}

SAVED = "saved"
NORMAL_WIDTH = 8  # double precision and two series: a wider tile makes a program of a megabyte


class RowColumns:
    """Tensors with a row for each slot. Slots of a call are distinct; negative ones are left out."""

    def __init__(self, spec: HbmSpec, device: torch.device) -> None:
        self.spec = spec
        self.values = torch.zeros(spec.slots, spec.dim, device=device)
        self.state = torch.zeros(spec.slots, spec.state_dim, device=device)
        self._names = [*spec.fields, *([SAVED] if spec.track_changes else [])]
        # The counters of a row side by side: an update then reads and writes one sector of memory for all of them.
        self._counters = torch.zeros(spec.slots, len(self._names), dtype=torch.int32, device=device)
        columns = dict(zip(self._names, self._counters.unbind(1), strict=True))
        self.saved: Tensor | None = columns.pop(SAVED, None)  # version in the lower tier
        self.fields: dict[str, Tensor] = columns
        self._stream = torch.tensor([spec.stream], dtype=torch.int64, device=device)

    @property
    def bytes(self) -> int:
        return self.values.nbytes + self.state.nbytes + self._counters.nbytes

    def rows(self, refused: Tensor) -> TableRows:
        """What an update changes; `refused` counts the rows that it leaves alone."""
        fields = self.fields
        counters = RowFields(fields["version"], fields["last_update"], fields.get("period"), fields.get("updates"))
        return TableRows("apply", self.spec.rule, self.values, self.state, counters, refused)

    def read(self, keys: Tensor, slots: Tensor) -> HbmRows:
        """Whole rows at slots, none of which is negative."""
        count = len(slots)
        values = self.values.new_empty(count, self.spec.dim)
        state = self.state.new_empty(count, self.spec.state_dim)
        counters = self._counters.new_empty(len(self._names), count)
        self._move(slots, values, state if self.spec.state_dim else None, counters, self._names, into=False)
        fields = dict(zip(self._names, counters.unbind(0), strict=True))
        saved = fields.pop(SAVED, None)
        return HbmRows(keys, values, state, fields, None if saved is None else saved.ne(fields["version"]))

    def read_values(self, slots: Tensor, out: Tensor, fill: float = 0.0) -> None:
        """Values into `out`, `fill` where a slot is negative. Slots may occur more than once."""
        launch(
            row_kernels.copy_values,
            blocks(len(slots)),
            self.values,
            slots,
            out,
            fill,
            len(slots),
            DIM=self.spec.dim,
            WIDTH=tile_width(self.spec.dim),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def make(self, keys: Tensor, slots: Tensor, period: int) -> None:
        """Fresh rows: first values, first state, version 1."""
        self._first_values(keys, slots)
        launch(
            row_kernels.fresh_rows,
            blocks(len(slots)),
            slots,
            self.state if self.spec.state_dim else None,
            self._counters,
            self.spec.rule.initial if "adagrad" in self.spec.rule.kind else 0.0,
            signed(period),
            len(slots),
            STATE_DIM=self.spec.state_dim,
            STATE_WIDTH=tile_width(max(1, self.spec.state_dim)),
            **self._first_counters,
        )

    def _first_values(self, keys: Tensor, slots: Tensor) -> None:
        spec, count = self.spec, len(keys)
        launch(
            row_kernels.first_values,
            blocks(count),
            keys,
            slots,
            self.values,
            self._stream,
            spec.amount,
            count,
            KIND=KINDS[spec.init].value,
            DIM=spec.dim,
            WIDTH=min(tile_width(spec.dim), NORMAL_WIDTH if spec.init == "normal" else WIDTH_MAX),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def write(self, slots: Tensor, rows: HbmRows, fresh: Tensor | None, period: int, *, saved: bool) -> None:
        """Whole rows; of state and counters what is given.

        Slots in `fresh` hold no rows yet: their other counters start as in new rows.
        """
        given = dict(rows.fields)
        if self.saved is not None and not saved:
            given[SAVED] = torch.zeros_like(slots, dtype=torch.int32)  # no version of a row
        elif self.saved is not None and "version" in given:
            given[SAVED] = given["version"]
        counters = self._counters.new_empty(len(self._names), len(slots)) if given else None
        for name, column in given.items():
            assert counters is not None
            counters[self._names.index(name)] = column
        state = rows.state if rows.state.shape[1] else None
        self._move(slots, rows.values, state, counters, given, fresh, period, into=True)
        if self.saved is not None and SAVED not in given:
            self.mark_saved(slots[slots >= 0])

    def _move(
        self,
        slots: Tensor,
        values: Tensor,
        state: Tensor | None,
        counters: Tensor | None,
        given: Iterable[str],
        fresh: Tensor | None = None,
        period: int = 0,
        *,
        into: bool,
    ) -> None:
        launch(
            row_kernels.move_rows,
            blocks(len(slots)),
            slots,
            fresh,
            self.values,
            None if state is None else self.state,
            self._counters,
            values,
            state,
            counters,
            signed(period),
            len(slots),
            INTO=into,
            GIVEN=sum(1 << self._names.index(name) for name in given),
            DIM=self.spec.dim,
            WIDTH=tile_width(self.spec.dim),
            STATE_DIM=self.spec.state_dim,
            STATE_WIDTH=tile_width(max(1, self.spec.state_dim)),
            **self._first_counters,
        )

    @property
    def _first_counters(self) -> dict[str, int]:
        names = self._names
        period_at = names.index("period") if "period" in names else -1
        places = {"VERSION_AT": names.index("version"), "PERIOD_AT": period_at, "COUNTERS": len(names)}
        return places | {"BLOCK": BLOCK, "num_warps": WARPS}

    def changed(self, slots: Tensor) -> Tensor:
        """Whether rows differ from those in the lower tier."""
        assert self.saved is not None
        return self.saved[slots].ne(self.fields["version"][slots])

    def mark_saved(self, slots: Tensor) -> None:
        assert self.saved is not None
        self.saved[slots] = self.fields["version"][slots]
