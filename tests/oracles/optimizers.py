"""The sparse optimizers in float64, one row at a time: what the native store is held against.

Every function is pure: it takes a row's value and state as they were and returns them as they shall be. The state of a
row is one array: Adagrad v[dim], row-wise Adagrad v[1], decayed Adagrad v[dim], Adam m[dim] v[dim], FTRL z[dim] n[dim].
An update is: clip by row norm, L2 into the gradient (FTRL keeps its own L2), decay of the value as in AdamW, optimizer.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap

F64 = NDArray[np.float64]
Spec = SGD | Adagrad | RowwiseAdagrad | DecayedAdagrad | Adam | FTRL


def state_dim(spec: Spec, dim: int) -> int:
    """Floats of state beside a value of `dim` floats."""
    match spec:
        case SGD():
            return 0
        case RowwiseAdagrad():
            return 1
        case Adagrad() | DecayedAdagrad():
            return dim
        case Adam() | FTRL():
            return 2 * dim


def first_state(spec: Spec, value: F64) -> F64:
    """The state of a row that has `value` and was never updated."""
    dim = len(value)
    match spec:
        case SGD():
            return np.zeros(0)
        case RowwiseAdagrad():
            return np.full(1, spec.initial)
        case Adagrad() | DecayedAdagrad():
            return np.full(dim, spec.initial)
        case Adam():
            return np.zeros(2 * dim)
        case FTRL():
            n = np.full(dim, spec.initial)
            return np.concatenate([_ftrl_z(spec, value, n), n])


def state_put_under(spec: Spec, value: F64, state: F64) -> F64:
    """The state of a row whose value was overwritten: kept, except FTRL's z, of which the value is a function."""
    return _ftrl_moved(spec, value, state) if isinstance(spec, FTRL) else state


def is_refused(gradient: NDArray[np.float32]) -> bool:
    """Whether the row is skipped whole: its squared norm, in float32 as the store adds it up, is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return not np.isfinite(np.sum(np.square(gradient.astype(np.float32)), dtype=np.float32))


def updated(spec: Spec, value: F64, state: F64, gradient: F64, *, t: int) -> tuple[F64, F64]:
    """One whole update. `t` counts from 1: the row's own updates, or the global step, as Adam's correction asks."""
    gradient = clipped(gradient, spec.clip)
    if not isinstance(spec, FTRL):
        gradient = gradient + spec.l2 * value
    if spec.decay:
        value = value - spec.lr * spec.decay * value
        state = np.where(_is_zero_weight(spec, value, state), state, state_put_under(spec, value, state))
    return _step(spec, value, state, gradient, t)


def clipped(gradient: F64, clip: float | None) -> F64:
    """The gradient with a norm of at most `clip`."""
    norm = math.sqrt(float(np.sum(gradient * gradient)))
    return gradient if clip is None or norm <= clip else gradient * (clip / norm)


def decayed(spec: Spec, state: F64, dim: int, periods: int) -> F64:
    """SWAP, eagerly: the state after `periods` borders were crossed one by one. Only the second moment decays."""
    swap = swap_of(spec)
    if swap is None:
        return state
    kept = dim if isinstance(spec, Adam) else 0
    moment = state[kept:]
    for _ in range(periods):
        moment = _decayed_once(swap, moment)
    return np.concatenate([state[:kept], moment])


def swap_of(spec: Spec) -> Swap | None:
    return spec.swap if isinstance(spec, Adagrad | RowwiseAdagrad | Adam) else None


def _decayed_once(swap: Swap, moment: F64) -> F64:
    smaller = moment * swap.decay
    if swap.floor is None:
        return smaller
    return np.maximum(smaller, np.minimum(moment, swap.floor))  # the floor stops decay and never raises


def _step(spec: Spec, value: F64, state: F64, gradient: F64, t: int) -> tuple[F64, F64]:
    match spec:
        case SGD():
            return value - spec.lr * gradient, state
        case RowwiseAdagrad():
            moment = state + np.mean(gradient * gradient)
            return _scaled_step(spec, value, gradient, moment), moment
        case Adagrad():
            moment = state + gradient * gradient
            return _scaled_step(spec, value, gradient, moment), moment
        case DecayedAdagrad():
            moment = spec.rate * state + (1.0 - spec.rate) * gradient * gradient
            return _scaled_step(spec, value, gradient, moment), moment
        case Adam():
            return _adam(spec, value, state, gradient, t)
        case FTRL():
            return _ftrl(spec, value, state, gradient)


def _scaled_step(spec: Adagrad | RowwiseAdagrad | DecayedAdagrad, value: F64, gradient: F64, moment: F64) -> F64:
    divisor = np.sqrt(moment + spec.eps) if spec.eps_inside else np.sqrt(moment) + spec.eps
    return value - spec.lr * _quotient(gradient, divisor)


def _quotient(dividend: F64, divisor: F64) -> F64:
    """0 where the divisor is 0: without eps that is an element whose gradients were all 0, so nothing moves it."""
    return np.divide(dividend, divisor, out=np.zeros_like(dividend), where=np.broadcast_to(divisor, dividend.shape) > 0)


def _adam(spec: Adam, value: F64, state: F64, gradient: F64, t: int) -> tuple[F64, F64]:
    dim = len(value)
    mean = spec.beta1 * state[:dim] + (1.0 - spec.beta1) * gradient
    square = spec.beta2 * state[dim:] + (1.0 - spec.beta2) * gradient * gradient
    rate = spec.lr * math.sqrt(1.0 - spec.beta2**t) / (1.0 - spec.beta1**t)
    return value - rate * _quotient(mean, np.sqrt(square) + spec.eps), np.concatenate([mean, square])


def _ftrl(spec: FTRL, value: F64, state: F64, gradient: F64) -> tuple[F64, F64]:
    """McMahan et al. 2013, Algorithm 1, with alpha = lr."""
    dim = len(value)
    z, n = state[:dim], state[dim:]
    grown = n + gradient * gradient
    sigma = (np.sqrt(grown) - np.sqrt(n)) / spec.lr
    z = z + gradient - sigma * value
    shrunk = z - np.sign(z) * spec.l1
    weight = -shrunk / ((spec.beta + np.sqrt(grown)) / spec.lr + spec.l2)
    return np.where(np.abs(z) <= spec.l1, 0.0, weight), np.concatenate([z, grown])


def _ftrl_z(spec: FTRL, value: F64, n: F64) -> F64:
    """The z whose weight, beside n, is `value`."""
    return -value * ((spec.beta + np.sqrt(n)) / spec.lr + spec.l2) - np.sign(value) * spec.l1


def _is_zero_weight(spec: Spec, value: F64, state: F64) -> NDArray[np.bool_]:
    """Where FTRL's state belongs to a weight of 0: any z within l1 gives it, so decay leaves that z as it is."""
    zero: NDArray[np.bool_] = np.tile(value == 0, 2) if isinstance(spec, FTRL) else np.zeros(len(state), np.bool_)
    return zero


def _ftrl_moved(spec: FTRL, value: F64, state: F64) -> F64:
    """The value was moved, which z must follow or the next update undoes it."""
    n = state[len(value) :]
    return np.concatenate([_ftrl_z(spec, value, n), n])
