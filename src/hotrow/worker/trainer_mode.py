"""Everything that exists only while a mode runs on a trainer: its dense parameters, its exchanges, its open batches."""

from collections.abc import Callable

from hotrow.client.pooled import RemoteTables
from hotrow.errors import HotrowError
from hotrow.modes import Mode
from hotrow.transport.errors import RanksLost
from hotrow.worker.dense_strategy import DenseStrategy
from hotrow.worker.exchange_queue import ExchangeQueue, PendingBatch
from hotrow.worker.rendezvous import Rendezvous


class TrainerMode:
    """A mode on one trainer. Batches are computed in the order of their tokens, none before its dense step."""

    def __init__(self, mode: Mode, dense: DenseStrategy, client: RemoteTables, meeting: Rendezvous) -> None:
        """`meeting`: where the ranks have met, in modes whose trainers end steps together."""
        self.mode, self.dense = mode, dense
        self._meeting = meeting
        self.outgoing = ExchangeQueue(client)
        self._begun: list[PendingBatch] = []  # not computed yet
        self._fault: str | None = None  # of a collective step: no further step is possible after it

    def look_up(self, task: PendingBatch) -> None:
        """Request the rows of a batch that arrived, and its dense parameters where they are on servers."""
        self.outgoing.look_up(task, may_wait=self.mode.most_in_flight > 1)
        self.dense.prefetch(task.work)

    def add(self, task: PendingBatch) -> None:
        """A batch waits to be computed."""
        self._begun.append(task)

    @property
    def computable(self) -> bool:
        """Whether a batch can be computed now, or refused."""
        if not self._begun:
            return False
        return self._fault is not None or self.dense.may_compute(min(self._begun).token)

    def take_next(self) -> PendingBatch:
        """The batch with the lowest token."""
        task = min(self._begun)
        self._begun.remove(task)
        return task

    def pulled_step(self, task: PendingBatch, dense_step: int) -> int:
        """The step of the rows where they are looked up before the dense parameters, else that of both."""
        return task.looked_step if self.mode.groups != ("both",) else dense_step

    def fail(self, why: str) -> None:
        """A collective failed, or was cut: whatever needs dense parameters is refused from now on."""
        self._fault = self._fault or why

    def mend(self) -> None:
        """The ranks that are left have met again."""
        self._fault = None

    def working(self) -> DenseStrategy:
        """The dense parameters; RanksLost where a step has failed."""
        if self._fault is not None:
            raise RanksLost(f"step {self.dense.step} has failed here: {self._fault}")
        return self.dense

    def together(self, act: Callable[[], None]) -> None:
        """Act with the other ranks. Where that fails they fail too, once this one has left the group."""
        try:
            act()
        except RanksLost as error:
            self.leave_group(str(error))
            raise
        except HotrowError:
            raise
        except Exception as error:
            self.leave_group(f"{type(error).__name__}: {error}")
            raise RanksLost(f"{type(error).__name__}: {error}") from error

    def leave_group(self, why: str) -> None:
        """Leave the other ranks: no step is possible until they meet again."""
        self.fail(why)
        self.dense.close()
        self._meeting.destroy()

    def close(self) -> list[PendingBatch]:
        """End the mode; returns the batches that it did not come to."""
        self.dense.close()
        return self._begun
