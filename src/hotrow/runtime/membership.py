"""Workers that come and go while a run goes on: who wishes it, and which number each has in the mode at work.

Wishes come from any thread; the engine takes them where nothing is half done. A mode that begins numbers those who are
there from 0 on. While it works numbers only rise: that of a worker which left is not used again.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.backend import Backend, WorkerPool


def _uncancelled() -> "Future[None]":
    """Whoever holds it can wait for it, and not call it off."""
    made: Future[None] = Future()
    made.set_running_or_notify_cancel()
    return made


@dataclass(frozen=True, slots=True, eq=False)
class ScaleRequest:
    """A worker that is started is to take part, or one that takes part is to leave; `done` when it does, or has."""

    name: str
    comes: bool
    done: "Future[None]" = field(default_factory=_uncancelled)


class Membership:
    """The workers of a site by name. Where a site has no staff nobody comes or goes."""

    def __init__(self, site: Backend) -> None:
        self._site = site
        self._wishes: deque[ScaleRequest] = deque()  # not looked at
        self._accepted: deque[ScaleRequest] = deque()  # that come true next
        self._staying: tuple[str, ...] = () if site.worker_pool is None else tuple(site.worker_pool.names)
        self._workers = {name: worker for worker, name in enumerate(self._staying)}  # in the mode at work
        self._given = len(self._workers)  # numbers that it has used
        self._leaving: dict[int, ScaleRequest] = {}

    @property
    def pending(self) -> bool:
        """Whether there is something to do."""
        return bool(self._wishes or self._leaving)

    @property
    def leaving(self) -> list[int]:
        """Workers that get no more batches."""
        return list(self._leaving)

    def add(self, wish: ScaleRequest) -> None:
        """In any thread."""
        self._wishes.append(wish)

    def after(self, wish: ScaleRequest, mode: Mode, facts: RunFacts) -> RunFacts:
        """The run when a wish came true; an error, with a sentence, where it cannot. Nothing is changed by asking."""
        if not wish.comes and wish.name not in self._staying:
            raise InputError(f"{wish.name!r}: there is no such trainer; there are: {', '.join(self._staying)}")
        if not wish.comes and len(self._staying) == 1:
            raise InputError(f"{wish.name!r}: is the last trainer, a run needs one: let another join first")
        changed = replace(facts, workers=len(self._staying) + (1 if wish.comes else -1))
        try:
            self._site.check_mode(mode, changed)
        except ConfigError as refusal:
            remedy = "" if mode.dense == "server" else ", or switch to a mode without equal shares first, as gba"
            raise ConfigError(f"{refusal}{remedy}") from None
        return changed

    def accept(self, mode: Mode, facts: RunFacts) -> RunFacts:
        """Look at all wishes: those that can come true will, the others are refused. Gives the run when they did."""
        while self._wishes:
            wish = self._wishes.popleft()
            try:
                facts = self.after(wish, mode, facts)
            except HotrowError as refusal:
                if wish.comes:
                    self._staff.stop_worker(wish.name)
                wish.done.set_exception(refusal)
                continue
            self._accepted.append(wish)
            others = tuple(name for name in self._staying if name != wish.name)
            self._staying = (*others, wish.name) if wish.comes else others
        return facts

    @property
    def accepted(self) -> bool:
        """Whether there is a wish that is to come true."""
        return bool(self._accepted)

    def take(self) -> ScaleRequest | None:
        """The next one that is to come true."""
        return self._accepted.popleft() if self._accepted else None

    def number(self) -> list[int]:
        """A mode begins, and numbers who is there; gives the numbers that mean somebody else now, or nobody."""
        before = self._workers
        if self._site.worker_pool is not None:
            self._workers = {name: worker for worker, name in enumerate(self._site.worker_pool.names)}
            self._given = len(self._workers)
        return [worker for name, worker in before.items() if self._workers.get(name) != worker]

    def begin(self, wish: ScaleRequest, step: int) -> int:
        """The mode at work begins on one more; gives its number."""
        worker, self._given = self._given, self._given + 1
        self._staff.admit(wish.name)
        self._staff.start_worker(wish.name, worker, step)
        self._workers[wish.name] = worker
        wish.done.set_result(None)
        return worker

    def leave(self, wish: ScaleRequest) -> None:
        """No more batches for this one."""
        self._leaving[self._workers[wish.name]] = wish

    def part(self, worker: int) -> None:
        """One that leaves has nothing to do any more."""
        wish = self._leaving.pop(worker)
        del self._workers[wish.name]
        self._dismiss(wish)

    def at_rest(self) -> None:
        """No mode is at work: all that was accepted happens at once."""
        for worker in self.leaving:
            self.part(worker)
        while (wish := self.take()) is not None:
            if wish.comes:
                self._staff.admit(wish.name)
                wish.done.set_result(None)
            else:
                self._dismiss(wish)

    def _dismiss(self, wish: ScaleRequest) -> None:
        def left(done: "Future[None]") -> None:
            if (fault := done.exception()) is not None:
                wish.done.set_exception(fault)
            else:
                wish.done.set_result(None)

        self._staff.stop_worker(wish.name).add_done_callback(left)

    @property
    def _staff(self) -> WorkerPool:
        assert self._site.worker_pool is not None
        return self._site.worker_pool
