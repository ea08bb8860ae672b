"""TorchRec on several processes of this machine over gloo, as one contestant of `hotrow bench cluster`."""

import os
import subprocess
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchrec_rank import ANSWER_S, Job

from hotrow.bench.train_plan import TrainPlan
from hotrow.errors import ConfigError, HotrowError

END_S = 10.0
SCRIPT = Path(__file__).with_name("torchrec_rank.py")
LAST_LINES = 12  # of a rank that failed


class TorchRecRanks:
    """The ranks, as one contestant."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...], file: Path, ranks: int = 2) -> None:
        if plan.samples % ranks:
            raise ConfigError(f"samples={plan.samples}: {ranks} ranks cannot share them evenly: give a multiple")
        self.loss = float("nan")  # mean over the last stretch
        self.moments: list[list[float]] = []  # by rank, when each of its steps ended
        self._folder = TemporaryDirectory(prefix="hotrow-torchrec-")
        self._ranks: list[_Process] = []
        folder = Path(self._folder.name)
        try:
            for rank in range(ranks):
                job = Job(plan, dim, hidden, file, rank, ranks, folder / "meeting")
                self._parts_lie = 1 if job.by_columns else 0
                self._ranks.append(_Process(job, folder / f"rank{rank}.log"))
            self._answers()
        except BaseException:
            self.close()
            raise

    def segment(self, turn: int) -> float:
        """Train on the stretch of a round, all ranks together; gives its seconds until the slowest is done."""
        start = time.perf_counter()
        answers = self._ask(turn)
        seconds = time.perf_counter() - start
        self.loss = float(np.mean([loss for loss, _ in answers]))
        self.moments = [moments for _, moments in answers]
        return seconds

    def rows(self) -> NDArray[np.float32]:
        """The whole table, for small ones."""
        return np.concatenate(self._ask(None), axis=self._parts_lie)

    def close(self) -> None:
        """End the ranks; a second call does nothing."""
        for rank in self._ranks:
            rank.connection.close()  # what a rank ends at
        for rank in self._ranks:
            rank.end()
        self._ranks = []
        self._folder.cleanup()

    def __enter__(self) -> "TorchRecRanks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, turn: int | None) -> list[Any]:
        for rank in self._ranks:
            try:
                rank.connection.send(turn)
            except OSError:
                raise HotrowError(rank.epitaph()) from None
        return self._answers()

    def _answers(self) -> list[Any]:
        """One from every rank, in their order."""
        waiting = {rank.connection: place for place, rank in enumerate(self._ranks)}
        answers: list[Any] = [None] * len(waiting)
        deadline = time.monotonic() + ANSWER_S
        while waiting:
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = ", ".join(str(place) for place in waiting.values())
                raise HotrowError(f"TorchRec's rank {silent}: no answer within {ANSWER_S:.0f} s")
            for connection in ready:
                assert isinstance(connection, Connection)
                place = waiting.pop(connection)
                try:
                    answers[place] = connection.recv()
                except (EOFError, OSError):
                    raise HotrowError(self._ranks[place].epitaph()) from None
        return answers


class _Process:
    """One rank as its parent sees it: a process, a pipe and what it wrote."""

    def __init__(self, job: Job, log: Path) -> None:
        self._rank, self._log = job.rank, log
        self.connection, theirs = Pipe()
        loopback = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(SCRIPT), str(theirs.fileno())]
        with log.open("wb") as out, theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | loopback,
                pass_fds=[theirs.fileno()],
            )
        self.connection.send(job)

    def end(self) -> int:
        """Its exit status; by force where it does not end by itself."""
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def epitaph(self) -> str:
        """How it ended, after it did."""
        status = self.end()
        lines = self._log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        return f"TorchRec's rank {self._rank} ended with status {status}: " + ("\n".join(lines) or "it wrote nothing")
