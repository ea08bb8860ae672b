"""The result of an update, whichever tier performs it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an update, in rows: each counted once however often its key occurs in the batch."""

    rows: int
    refused: int  # the gradient was not finite: the row stays as it was
    absent: int  # no such row: nothing was created
    weightless: int = 0  # every weight of the key was 0: the row stays as it was
    unadmitted: int = 0  # the lookup had given the key no row

    def __add__(self, other: "Applied") -> "Applied":
        return Applied(
            self.rows + other.rows,
            self.refused + other.refused,
            self.absent + other.absent,
            self.weightless + other.weightless,
            self.unadmitted + other.unadmitted,
        )
