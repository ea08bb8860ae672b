"""The interface of embedding clients: look a batch up, and take the gradients of its vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError
from hotrow.nn.inputs import Inputs, InputShape, SequenceRows
from hotrow.store import Applied, SavedTable


@dataclass(frozen=True, slots=True, eq=False)
class FeatureVectors:
    """The vectors of one part of a batch. `rows` is a leaf: backward leaves its gradient there."""

    part: FeatureBlock
    rows: Tensor  # [samples, features, dim], of a sequence [samples, longest, dim]
    mask: Tensor | None = None  # of a sequence: bool [samples, longest]


class Handle(Protocol):
    """One lookup, from its vectors to the push of their gradients."""

    @property
    def outputs(self) -> Sequence[FeatureVectors]:
        """One for each part of the batch, in order."""

    @property
    def samples(self) -> int:
        """Samples of the batch."""


class EmbeddingClient(Protocol):
    """Rows by id, pooled where a bag holds several."""

    def lookup(self, batch: Batch, *, learn: bool) -> Handle:
        """Vectors for all ids of a batch. With `learn` absent ids get their row, and `push` is expected."""

    def push(self, handle: Any, *, step: int, samples: int, lr_scale: float = 1.0) -> Mapping[str, Applied]:
        """Apply the gradients that backward left in the outputs; returns the result by table.

        `samples` counts all samples up to and including this batch.
        """


class TableCollection(Protocol):
    """The tables of a client, for checkpoints and reports."""

    @property
    def tiers(self) -> Mapping[str, SavedTable]:
        """By name."""

    def close(self) -> None:
        """Release all rows."""


def inputs_of(batch: Batch, handle: Handle) -> Inputs:
    """The inputs of the model."""
    blocks = {output.part.features: output.rows for output in handle.outputs if output.mask is None}
    sequences = {
        output.part.features[0]: SequenceRows(output.rows, output.mask)
        for output in handle.outputs
        if output.mask is not None
    }
    return Inputs(torch.from_numpy(batch.numbers), blocks, sequences)


def shape_of(batch: Batch, dims: Mapping[str, int]) -> InputShape:
    """The input shape for a model of batches like this one; `dims` are those of the tables."""
    fields: dict[str, int] = {}
    sequences: dict[str, int] = {}
    for part in batch.parts:
        if part.table not in dims:
            known = ", ".join(map(repr, dims)) or "none"
            raise ConfigError(f"table {part.table!r} of feature {part.features[0]!r} is missing: there are {known}")
        (sequences if part.kind == "sequence" else fields).update(dict.fromkeys(part.features, dims[part.table]))
    return InputShape(batch.numbers.shape[1], fields, sequences)
