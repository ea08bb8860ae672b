"""What rows hold, apart from their keys: values, optimizer state and counters, by slot."""

import torch
from torch import Tensor

from hotrow.kernels.launch import launch
from hotrow.kernels.update_rule import RowFields
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
        names = [*spec.fields, *([SAVED] if spec.track_changes else [])]
        # The counters of a row side by side: an update then reads and writes one sector of memory for all of them.
        self._counters = torch.zeros(spec.slots, len(names), dtype=torch.int32, device=device)
        columns = dict(zip(names, self._counters.unbind(1), strict=True))
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
        return TableRows(self.values, self.state, counters, refused)

    def read(self, keys: Tensor, slots: Tensor) -> HbmRows:
        """Whole rows at slots, none of which is negative."""
        values = self.values.new_empty(len(slots), self.spec.dim)
        state = self.state.new_empty(len(slots), self.spec.state_dim)
        _copy(self.values, slots, values, into=False)
        _copy(self.state, slots, state, into=False)
        fields = {name: column[slots] for name, column in self.fields.items()}
        return HbmRows(keys, values, state, fields, None if self.saved is None else self.changed(slots))

    def read_values(self, slots: Tensor, out: Tensor, without: float = 0.0) -> None:
        """Values into `out`, `without` where a slot is negative. Slots may occur more than once."""
        _copy(self.values, slots, out, into=False, fill=without)

    def make(self, keys: Tensor, slots: Tensor, period: int, given: frozenset[str] = frozenset()) -> None:
        """Fresh rows: first values, first state, version 1. RowColumns in `given` are written by the caller next."""
        if "values" not in given:
            self._first_values(keys, slots)
        there = slots[slots >= 0]
        if "state" not in given:
            self.state[there] = self.spec.rule.initial if "adagrad" in self.spec.rule.kind else 0.0
        for name in self.fields.keys() - given:
            self.fields[name][there] = {"version": 1, "period": period}.get(name, 0)
        if self.saved is not None:
            self.saved[there] = 0

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

    def write(self, slots: Tensor, rows: HbmRows, *, with_state: bool, saved: bool) -> None:
        """Whole rows; state and fields only where they are given."""
        here = slots >= 0
        there = slots[here]
        fields = {name: column[here] for name, column in rows.fields.items()}  # takes memory: before anything changes
        _copy(self.values, slots, rows.values, into=True)
        if with_state:
            _copy(self.state, slots, rows.state, into=True)
        for name, column in fields.items():
            self.fields[name][there] = column
        if self.saved is not None:
            self.saved[there] = self.fields["version"][there] if saved else 0

    def changed(self, slots: Tensor) -> Tensor:
        """Whether rows differ from those in the lower tier."""
        assert self.saved is not None
        return self.saved[slots].ne(self.fields["version"][slots])

    def mark_saved(self, slots: Tensor) -> None:
        assert self.saved is not None
        self.saved[slots] = self.fields["version"][slots]


def _copy(table: Tensor, slots: Tensor, rows: Tensor, *, into: bool, fill: float = 0.0) -> None:
    dim = table.shape[1]
    if dim:
        launch(
            row_kernels.copy_rows,
            blocks(len(slots)),
            table,
            slots,
            rows,
            fill,
            len(slots),
            INTO=into,
            DIM=dim,
            WIDTH=tile_width(dim),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
