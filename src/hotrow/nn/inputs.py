"""What a model gets: the vectors of its id features, sequences of vectors, and numbers."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hotrow.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True)
class InputShape:
    """Describes the inputs that a model is built for.

    Fields are features with one vector per sample; dims are those of the table rows.

    Example:
        >>> import hotrow as hr
        >>> shape = hr.InputShape(numbers=2, fields={"user": 8, "item": 8})
        >>> shape.dim
        8
    """

    numbers: int
    fields: dict[str, int] = field(default_factory=dict)  # name -> dim, in the order of Inputs.rows and Inputs.flat
    sequences: dict[str, int] = field(default_factory=dict)  # name -> dim

    @property
    def dim(self) -> int:
        """The one dim of all fields; models that multiply fields with each other need it."""
        dims = set(self.fields.values())
        if len(dims) != 1:
            found = ", ".join(f"{name}: {dim}" for name, dim in self.fields.items()) or "no id features"
            raise ConfigError(f"dim: this model needs rows of one size in all its tables, there are {found}")
        return dims.pop()

    @property
    def flat(self) -> int:
        """Elements of all fields' vectors side by side."""
        return sum(self.fields.values())


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The vectors of a sequence feature, padded with zeros at the end."""

    rows: Tensor  # [samples, longest, dim]
    mask: Tensor  # bool [samples, longest]: True where there is an id


class Inputs:
    """Holds one batch of inputs for a model: numbers, vectors of ids, sequences.

    Example:
        >>> import torch
        >>> import hotrow as hr
        >>> inputs = hr.Inputs(torch.zeros(3, 2), {("user", "item"): torch.ones(3, 2, 4)})
        >>> len(inputs), tuple(inputs.flat.shape)
        (3, (3, 8))
    """

    def __init__(
        self, numbers: Tensor, blocks: dict[tuple[str, ...], Tensor], sequences: dict[str, SequenceRows] | None = None
    ) -> None:
        self.numbers = numbers  # [samples, numbers]
        self._blocks = blocks  # names of fields -> [samples, fields, dim]
        self._sequences = sequences or {}

    def __len__(self) -> int:
        return len(self.numbers)

    def to(self, device: torch.device) -> "Inputs":
        """The same on a device. Gradients come back to where the vectors are."""
        if device == self.numbers.device:
            return self
        return Inputs(
            self.numbers.to(device),
            {names: block.to(device) for names, block in self._blocks.items()},
            {name: SequenceRows(each.rows.to(device), each.mask.to(device)) for name, each in self._sequences.items()},
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in the order of `rows` and `flat`."""
        return tuple(name for names in self._blocks for name in names)

    @property
    def rows(self) -> Tensor:
        """All fields' vectors, [samples, fields, dim]; dims must be equal."""
        blocks = list(self._blocks.values())
        if not blocks:
            return self.numbers.new_empty(len(self), 0, 0)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    @property
    def flat(self) -> Tensor:
        """All fields' vectors side by side, [samples, sum of dims]."""
        blocks = [block.flatten(1) for block in self._blocks.values()]
        if not blocks:
            return self.numbers.new_empty(len(self), 0)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def __getitem__(self, name: str) -> Tensor:
        """One field's vectors, [samples, dim]."""
        for names, block in self._blocks.items():
            if name in names:
                return block[:, names.index(name)]
        raise InputError(f"field {name!r}: there is none; fields are {self.fields}, sequences {tuple(self._sequences)}")

    def sequence(self, name: str) -> SequenceRows:
        """A sequence feature's vectors and which of them are there."""
        if name not in self._sequences:
            raise InputError(f"sequence {name!r}: there is none; sequences are {tuple(self._sequences)}")
        return self._sequences[name]
