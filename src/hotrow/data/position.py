"""Which batches are done: what a resume needs to hand out exactly the others. Pure: plain numbers, as JSON and back."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from hotrow.errors import ConfigError, InputError
from hotrow.sizes import MOST, Whole
from hotrow.spec import Spec


class Mark(Spec):
    """How far an epoch is: every batch below `below` is done, and those named in `above`, in rising order."""

    below: Whole = Field(default=0, ge=0, le=MOST)
    above: tuple[Whole, ...] = ()
    batches: Whole | None = Field(default=None, ge=0, le=MOST)  # that the epoch has, once its end was seen

    @model_validator(mode="after")
    def _numbers_rise(self) -> "Mark":
        if any(low >= high for low, high in zip((self.below, *self.above), self.above, strict=False)):
            raise ValueError(f"above={list(self.above)} must rise, from beyond below={self.below}")
        if self.batches is not None and max(self.below - 1, *self.above, -1) >= self.batches:
            raise ValueError(f"batches={self.batches} is fewer than are done: below={self.below}, {list(self.above)}")
        return self

    def holds(self, index: int) -> bool:
        """Whether a batch is done."""
        place = bisect_left(self.above, index)
        return index < self.below or self.above[place : place + 1] == (index,)

    def with_done(self, index: int) -> "Mark":
        """The mark after one more batch."""
        above = sorted((*self.above, index))
        below = self.below
        while above and above[0] == below:
            below += 1
            del above[0]
        return self.model_copy(update={"below": below, "above": tuple(above)})

    @property
    def is_over(self) -> bool:
        """Whether every batch of the epoch is done."""
        return self.below == self.batches


class Position(Spec):
    """The trained part of the data, and the settings that determine the rows of a batch."""

    batch: Whole = Field(ge=1, le=MOST)
    shuffle: Whole = Field(default=0, ge=0, le=MOST)
    seed: Whole = Field(default=0, ge=0, lt=2**64)
    drop_last: bool = False
    epoch: Whole = Field(default=0, ge=0, le=MOST)  # the first that is not over
    marks: tuple[Mark, ...] = ()  # of `epoch` and those after it, as far as they are begun
    samples: Whole = Field(default=0, ge=0, le=MOST)  # done, of all epochs
    leases: Whole = Field(default=0, ge=0, le=MOST)  # numbers given out: none is used again

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Position":
        """From what `document` gave; a sentence where it cannot be."""
        if not isinstance(document, Mapping):
            raise InputError(f"position is a {type(document).__name__}: give what Position.document() gave")
        return cls(**document)

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return self.model_dump(mode="json")

    def mark(self, epoch: int) -> Mark:
        """How far an epoch is."""
        if epoch < self.epoch:
            raise InputError(f"epoch={epoch}: is over, the first open one is {self.epoch}")
        place = epoch - self.epoch
        return self.marks[place] if place < len(self.marks) else Mark()

    def marks_from(self, epoch: int) -> tuple[Mark, ...]:
        """The marks of an epoch and of those after it."""
        return self.marks[max(0, epoch - self.epoch) :]

    def is_done(self, epoch: int, index: int) -> bool:
        """Whether a batch is done."""
        return epoch < self.epoch or self.mark(epoch).holds(index)

    def with_done(self, epoch: int, index: int, samples: int) -> "Position":
        """The position after one more batch."""
        if index < 0 or self.is_done(epoch, index):
            fault = "there is no such batch" if index < 0 else "is done already"
            raise InputError(f"batch {index} of epoch {epoch}: {fault}")
        return self._with(epoch, self.mark(epoch).with_done(index)).model_copy(
            update={"samples": self.samples + samples}
        )

    def with_end(self, epoch: int, batches: int) -> "Position":
        """The position once it is known how many batches an epoch has; an epoch read again may be over by its end."""
        if epoch < self.epoch:
            return self
        mark = self.mark(epoch)
        return self._with(epoch, Mark(below=mark.below, above=mark.above, batches=batches))

    def with_lease(self) -> "Position":
        """The position after one more lease number was given out: it is `leases` of the position before."""
        return self.model_copy(update={"leases": self.leases + 1})

    def check_same(self, **settings: int) -> None:
        """ConfigError where a resume would make other batches of the rows."""
        for name, value in settings.items():
            before = getattr(self, name)
            if value != before and not (name == "seed" and self.shuffle == 0):
                given = f"{name}={value!r}: the position to resume from was made with {name}={before!r}"
                raise ConfigError(f"{given}: set it back, or start anew without the position")

    def _with(self, epoch: int, mark: Mark) -> "Position":
        place = epoch - self.epoch
        marks = [*self.marks, *(Mark() for _ in range(place + 1 - len(self.marks)))]
        marks[place] = mark
        over = 0
        while over < len(marks) and marks[over].is_over:
            over += 1
        return self.model_copy(update={"epoch": self.epoch + over, "marks": tuple(marks[over:])})
