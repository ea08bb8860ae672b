"""Losses by name, and the meaning of the model's output under each.

A loss over a local batch of n samples is (sum of w_i l_i) / n, with w_i = 1 where samples have no weights: the mean of
the parts of a step, by their samples, is then the loss of one large batch, whatever the parts weigh.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from hotrow.errors import ConfigError, InputError
from hotrow.sizes import number_text
from hotrow.spec import SettingsError, Spec

Task = Literal["classification", "regression"]
Loss = Callable[..., Tensor]  # (output of the model, labels [samples, labels], maybe weights [samples]) -> one number


class Logistic(Spec):
    """Binary cross entropy of log-odds; labels from 0 to 1."""

    task: ClassVar[Task] = "classification"
    name: Literal["logistic"] = "logistic"

    def __call__(self, output: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        return binary_cross_entropy(output, labels, weights)


class RegressionLoss(Spec):
    """The output is the number that is predicted."""

    task: ClassVar[Task] = "regression"

    def __call__(self, output: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        return weighted_mean(self.losses(output_per_label(output, labels), labels), weights)

    @abstractmethod
    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """The loss of each label: [samples, labels]."""

    def predictions(self, output: Tensor) -> Tensor:
        """The predicted number for each output."""
        return output


class Squared(RegressionLoss):
    """(prediction - label)^2: predicts the mean."""

    name: Literal["squared"] = "squared"

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        return functional.mse_loss(output, labels, reduction="none")


class Absolute(RegressionLoss):
    """|prediction - label|: predicts the median."""

    name: Literal["absolute"] = "absolute"

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        return functional.l1_loss(output, labels, reduction="none")


class Huber(RegressionLoss):
    """Half the square up to an error of `delta`, beyond it delta (|error| - delta / 2): outliers pull less."""

    name: Literal["huber"] = "huber"
    delta: float = Field(default=1.0, gt=0)

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        return functional.huber_loss(output, labels, reduction="none", delta=self.delta)


class Poisson(RegressionLoss):
    """exp(output) - label * output: counts, labels of 0 or more; the output is the log of the prediction."""

    name: Literal["poisson"] = "poisson"

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        if not bool((labels >= 0).all()):
            worst = label_text(labels[~(labels >= 0)][0])
            raise InputError(f"a label is {worst}: loss 'poisson' needs counts of 0 or more: take loss 'squared'")
        return functional.poisson_nll_loss(output, labels, log_input=True, reduction="none")

    def predictions(self, output: Tensor) -> Tensor:
        return output.exp()


NamedLoss: TypeAlias = Annotated[Logistic | Squared | Absolute | Huber | Poisson, Field(discriminator="name")]
AnyLoss: TypeAlias = Annotated[
    NamedLoss, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)
]


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over samples and labels of weight * loss: the divisor is the count, not the weights."""
    return losses.mean() if weights is None else (losses * weights[:, None]).mean()


def output_per_label(output: Tensor, labels: Tensor) -> Tensor:
    """The output as [samples, labels]."""
    if output.dim() == 1:
        output = output[:, None]
    if output.shape != labels.shape:
        raise InputError(
            f"the model gives {tuple(output.shape)} and the labels are {tuple(labels.shape)}: "
            "give one output per label, or a model (or Trainer) with a loss of its own"
        )
    return output


def binary_cross_entropy(output: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean over samples and labels, of log-odds [samples] or [samples, labels]."""
    output = output_per_label(output, labels)
    if not bool(((labels >= 0) & (labels <= 1)).all()):
        worst = label_text(labels[~((labels >= 0) & (labels <= 1))][0])
        raise InputError(
            f"a label is {worst}: must be from 0 to 1; at_least in the label's setting makes it 0 or 1, and "
            "loss = 'squared' predicts the number itself"
        )
    if weights is None:
        return functional.binary_cross_entropy_with_logits(output, labels)
    return weighted_mean(functional.binary_cross_entropy_with_logits(output, labels, reduction="none"), weights)


def label_text(label: Tensor) -> str:
    """One label in a message, with the digits that its type holds: a float32 of 0.1 is not 0.10000000149."""
    return number_text(float(str(label.cpu().numpy())))


def takes_weights(loss: Loss) -> bool:
    """Whether a loss has a parameter `weights`."""
    return "weights" in inspect.signature(loss).parameters


def objective_of(model: nn.Module, loss: Any = None, task: Task | None = None) -> "tuple[Loss | None, Task]":
    """The loss to train by (None: the model's own, or binary cross entropy) and the task.

    A named loss has its task. For a function, or the model's own loss, `task` says what the outputs are.
    """
    loss = named_loss(loss) if isinstance(loss, str | dict) else loss
    if loss is not None and not callable(loss):
        raise ConfigError(f"loss={loss!r}: give the name of a loss, or a function of output and labels")
    if task not in (None, "classification", "regression"):
        raise ConfigError(f"task={task!r}: must be 'classification' or 'regression'")
    of_model = getattr(model, "task", None)
    known = getattr(loss, "task", None) if loss is not None else of_model
    if task is not None and known is not None and known != task:
        owner = f"loss {loss.name!r}" if loss is not None else f"the loss of {type(model).__name__}"
        raise ConfigError(f"task={task!r}: {owner} is one of {known}: leave task out, or give another loss")
    chosen: Task = task or known or "classification"
    if loss is None and chosen == "regression" and not hasattr(model, "loss"):
        return Squared(), chosen
    return loss, chosen


def named_loss(value: Any) -> "Logistic | RegressionLoss":
    """A loss by its name, or by name and settings."""
    try:
        found: Logistic | RegressionLoss = TypeAdapter(AnyLoss).validate_python(value)
    except (ValidationError, SettingsError) as error:
        names = "logistic, squared, absolute, huber, poisson"
        raise ConfigError(f"loss={value!r}: there is no such loss: there are {names}") from error
    return found


def predictions_of(model: nn.Module, loss: Loss | None, task: Task) -> Callable[[Tensor], Tensor]:
    """The function from the model's output to predictions: probabilities of classes, or numbers."""
    own: Callable[[Tensor], Tensor] | None = getattr(model, "probabilities", None)
    if task == "regression":
        by_loss: Callable[[Tensor], Tensor] | None = getattr(loss, "predictions", None)
        return by_loss or _unchanged
    return own or torch.sigmoid


def _unchanged(output: Tensor) -> Tensor:
    return output
