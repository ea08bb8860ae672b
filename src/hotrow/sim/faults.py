"""Injected faults: crashes and restarts of workers and shards, late joins, server pauses, messages lost or delayed.

The fate of a message depends on the seed and on its grant, not on when it was sent. A push that is not acknowledged in
time is sent again, so it may arrive twice, late, or after others that were sent later.
"""

from itertools import pairwise
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from hotrow.sim.pace import chance_of
from hotrow.sizes import Whole, number_text
from hotrow.spec import Spec

PULL, PUSH, DRAWN = 4, 5, 6  # streams of random numbers
WorkerNumber = Annotated[Whole, Field(ge=0, le=1_000_000)]


class Crash(Spec):
    """A worker fails, and restarts under its number, without its state, `restart_after_s` later, or never."""

    worker: WorkerNumber
    at_s: float = Field(ge=0)
    restart_after_s: float | None = Field(default=None, ge=0)
    cut_off: bool = False  # unreachable instead of dead: its last gradients still arrive, after its loss


class Join(Spec):
    """A worker that joins after the start."""

    worker: WorkerNumber
    at_s: float = Field(ge=0)


class Pause(Spec):
    """The servers do not answer."""

    at_s: float = Field(ge=0)
    for_s: float = Field(gt=0)


class ShardCrash(Spec):
    """The process of a shard ends, and another one takes over its rows. Pushes that were parked there are lost."""

    shard: Annotated[Whole, Field(ge=0, le=1023)]
    at_s: float = Field(ge=0)
    restart_after_s: float = Field(gt=0)  # nothing is answered meanwhile: every batch needs all shards


class Messages(Spec):
    """Probabilities of faults for each message."""

    model_config = ConfigDict(validate_default=True)

    loss: float = Field(default=0.0, ge=0, le=0.9)
    duplicate: float = Field(default=0.0, ge=0, le=1)
    delay: float = Field(default=0.0, ge=0, le=1)
    delay_s: float = Field(default=0.0, ge=0)  # the longest delay; shorter ones are as likely
    timeout_s: float = Field(default=1.0, gt=0)  # without a reply for so long, a message is sent again

    @field_validator("delay_s")
    @classmethod
    def _delays_take_time(cls, value: float, info: ValidationInfo) -> float:
        if value == 0 and info.data.get("delay", 0) > 0:
            given = number_text(info.data["delay"])
            raise ValueError(f"with delay={given} messages are late by no time: give delay_s too")
        return value

    @property
    def at_work(self) -> bool:
        """Whether any message is affected."""
        return bool(self.loss or self.duplicate or self.delay)


class Faults(Spec):
    """All faults of a run."""

    crashes: tuple[Crash, ...] = ()
    joins: tuple[Join, ...] = ()
    pauses: tuple[Pause, ...] = ()
    shard_crashes: tuple[ShardCrash, ...] = ()
    messages: Messages = Messages()
    detect_s: float = Field(default=1.0, ge=0)  # from a crash until it is detected

    @field_validator("crashes")
    @classmethod
    def _crashes_of_the_living(cls, value: tuple[Crash, ...]) -> tuple[Crash, ...]:
        for first, then in pairwise(sorted(value, key=lambda crash: (crash.worker, crash.at_s))):
            if first.worker != then.worker:
                continue
            if first.restart_after_s is None or then.at_s < first.at_s + first.restart_after_s:
                again, since = number_text(then.at_s), number_text(first.at_s)
                message = f"worker {then.worker} crashes at {again} s and is down since {since} s"
                raise ValueError(f"{message}: give the first crash a restart_after_s that ends before")
        return value

    @field_validator("joins")
    @classmethod
    def _join_once(cls, value: tuple[Join, ...]) -> tuple[Join, ...]:
        numbers = [join.worker for join in value]
        twice = next((number for number in numbers if numbers.count(number) > 1), None)
        if twice is not None:
            raise ValueError(f"worker {twice} joins twice: a crash with restart_after_s brings one back")
        return value

    @field_validator("pauses")
    @classmethod
    def _pauses_apart(cls, value: tuple[Pause, ...]) -> tuple[Pause, ...]:
        for first, then in pairwise(sorted(value, key=lambda pause: pause.at_s)):
            if then.at_s < first.at_s + first.for_s:
                message = f"the pauses at {number_text(first.at_s)} s and {number_text(then.at_s)} s overlap"
                raise ValueError(f"{message}: make one of them")
        return value

    @field_validator("shard_crashes")
    @classmethod
    def _shards_crash_one_by_one(cls, value: tuple[ShardCrash, ...]) -> tuple[ShardCrash, ...]:
        for first, then in pairwise(sorted(value, key=lambda crash: crash.at_s)):
            if then.at_s < first.at_s + first.restart_after_s:
                again, since = number_text(then.at_s), number_text(first.at_s)
                message = f"shard {then.shard} crashes at {again} s, and shard {first.shard} is down since {since} s"
                raise ValueError(f"{message}: give the first crash a restart_after_s that ends before")
        return value

    @property
    def silent(self) -> list[tuple[float, float]]:
        """From when until when servers do not answer; apart from each other."""
        pauses = [(pause.at_s, pause.at_s + pause.for_s) for pause in self.pauses]
        down = [(crash.at_s, crash.at_s + crash.restart_after_s) for crash in self.shard_crashes]
        joined: list[tuple[float, float]] = []
        for from_s, until_s in sorted(pauses + down):
            if joined and from_s <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], until_s))
            else:
                joined.append((from_s, until_s))
        return joined


class Fates:
    """Draws the faults of messages from a seed."""

    def __init__(self, messages: Messages, seed: int) -> None:
        self._messages, self._seed = messages, seed

    def pull_delay_s(self, grant: int) -> float:
        """The delay of a worker's request; lost ones are sent again."""
        delay_s = 0.0
        for attempt in range(1000):
            if self._drawn(PULL, grant, 0, attempt, 0) >= self._messages.loss:
                return delay_s + self._delay_s(PULL, grant, 0, attempt)
            delay_s += self._messages.timeout_s
        raise AssertionError("a request was lost 1,000 times")

    def copies(self, grant: int, group: int, attempt: int) -> list[float]:
        """Delays of the copies of a push that arrive; none: it is lost."""
        if self._drawn(PUSH, grant, group, attempt, 0) < self._messages.loss:
            return []
        delays = [self._delay_s(PUSH, grant, group, attempt)]
        if self._drawn(PUSH, grant, group, attempt, 3) < self._messages.duplicate:
            delays.append(delays[0] + self._drawn(PUSH, grant, group, attempt, 4) * self._messages.timeout_s)
        return delays

    def _delay_s(self, kind: int, grant: int, group: int, attempt: int) -> float:
        if self._drawn(kind, grant, group, attempt, 1) >= self._messages.delay:
            return 0.0
        return self._drawn(kind, grant, group, attempt, 2) * self._messages.delay_s

    def _drawn(self, *names: int) -> float:
        return chance_of(self._seed, *names)


def drawn_faults(seed: int, workers: int, until_s: float, shards: int = 0) -> Faults:
    """Random faults of every kind. Crashes, joins and pauses begin before `until_s`; message faults last to the end.

    Worker 0 never crashes, so that at least one worker is present. Shards crash where their number is given.
    """

    def draw(*names: int) -> float:
        return chance_of(seed, DRAWN, *names)

    crashes = []
    for worker in range(1, workers):
        if draw(1, worker) < 0.5:
            at_s = draw(2, worker) * until_s * 0.6
            back = None if draw(3, worker) < 0.3 else draw(4, worker) * until_s * 0.3
            crashes.append(Crash(worker=worker, at_s=at_s, restart_after_s=back, cut_off=draw(5, worker) < 0.4))
    joins = [Join(worker=workers + each, at_s=draw(6, each) * until_s) for each in range(int(draw(7) * 3))]
    pauses = [Pause(at_s=draw(8) * until_s, for_s=0.01 * until_s + draw(9) * until_s * 0.1)] if draw(10) < 0.5 else []
    messages = Messages(
        loss=draw(11) * 0.2,
        duplicate=draw(12) * 0.3,
        delay=draw(13) * 0.3,
        delay_s=0.01 * until_s + draw(14) * until_s * 0.1,
        timeout_s=0.01 * until_s + draw(15) * until_s * 0.05,
    )
    detect_s = draw(16) * until_s * 0.1
    turns = 4 if shards else 0  # each crash has a quarter of the time
    shard_crashes = [
        ShardCrash(
            shard=int(draw(17, turn) * shards),
            at_s=(turn + 0.8 * draw(18, turn)) * until_s / turns,
            restart_after_s=(0.01 + 0.15 * draw(19, turn)) * until_s / turns,
        )
        for turn in range(turns)
        if draw(20, turn) < 0.7
    ]
    return Faults(
        crashes=tuple(crashes),
        joins=tuple(joins),
        pauses=tuple(pauses),
        shard_crashes=tuple(shard_crashes),
        messages=messages,
        detect_s=detect_s,
    )
