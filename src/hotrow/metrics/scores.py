"""Labels 0 and 1 and the logits of an evaluation, collected batch by batch."""

from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError
from hotrow.metrics.arrays import Array, beside, truth_of, weights_beside
from hotrow.metrics.probabilities import calibration, calibration_points, logloss_of_logits, normalised_entropy, sigmoid
from hotrow.metrics.ranking import auc, grouped_auc, roc_points


class Scores:
    """8 bytes a sample; 8 more with groups, 4 more with weights.

    Example:
        >>> import numpy as np
        >>> from hotrow.metrics import Scores
        >>> scores = Scores()
        >>> scores.add(np.array([1.0, 0.0]), np.array([2.0, -2.0], np.float32))
        >>> scores.metrics()["auc"]
        1.0
    """

    def __init__(self) -> None:
        self._labels: list[Array] = []
        self._logits: list[Array] = []
        self._groups: list[Array] = []
        self._weights: list[Array] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        labels: npt.ArrayLike,
        logits: npt.ArrayLike,
        groups: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        """Take a batch; it is copied. Either every batch has groups or none has, and weights likewise."""
        for name, given, known in (("groups", groups, self._groups), ("weights", weights, self._weights)):
            if self._labels and (given is not None) != bool(known):
                raise InputError(
                    f"{name}: given with some batches and not with others; give them with all or with none"
                )
        truth = truth_of(labels)
        outputs, weight = beside(truth, "logits", logits), weights_beside(truth, weights)
        if groups is not None:
            self._groups.append(beside(truth, "groups", groups).astype(np.int64))
        if weight is not None:
            self._weights.append(weight.astype(np.float32))
        self._labels.append(truth.astype(np.float32))
        self._logits.append(outputs.astype(np.float32))
        self._count += len(truth)

    def extend(self, other: "Scores") -> None:
        """All samples of another evaluation too."""
        for name in ("groups", "weights"):
            if len(self) and len(other) and bool(getattr(other, f"_{name}")) != bool(getattr(self, f"_{name}")):
                raise InputError(
                    f"{name}: one evaluation has them and the other has not; take them with both or with none"
                )
        self._labels += other._labels
        self._logits += other._logits
        self._groups += other._groups
        self._weights += other._weights
        self._count += len(other)

    def metrics(self) -> dict[str, float | None]:
        """auc, logloss, normalised_entropy and calibration; with groups also grouped_auc and the groups behind it."""
        labels, logits, weights = self.joined()
        loss = logloss_of_logits(labels, logits, weights)
        figures = {
            "auc": auc(labels, logits, weights),
            "logloss": loss,
            "normalised_entropy": normalised_entropy(labels, loss, weights),
            "calibration": calibration(labels, sigmoid(logits), weights),
        }
        if self._groups:
            grouped = grouped_auc(labels, logits, np.concatenate(self._groups), weights)
            figures["grouped_auc"] = grouped.value
            figures["groups_used"] = grouped.groups_used
            figures["groups_left_out"] = grouped.groups_left_out
        return figures

    def pictures(self) -> dict[str, list[Any]]:
        """What a page draws: points of the ROC curve and of the calibration."""
        labels, logits, weights = self.joined()
        return {
            "roc": [list(point) for point in roc_points(labels, logits, weights=weights)],
            "calibration": calibration_points(labels, sigmoid(logits), weights=weights),
        }

    def joined(self) -> tuple[Array, Array, Array | None]:
        """Labels, logits and weights of all samples, in the order in which they came."""
        if not self._labels:
            return np.zeros(0, np.float32), np.zeros(0, np.float32), None
        weights = np.concatenate(self._weights) if self._weights else None
        return np.concatenate(self._labels), np.concatenate(self._logits), weights
