"""Paddle's parameter server as a peer of `hotrow bench cluster`: a script in an environment of its own.

HOTROW_PADDLE_PYTHON names the Python of that environment; paddle/bin/python in the current folder if it is not set.

The script gets the rows of the Parquet file as plain arrays and has them in memory before it is timed.
"""

import json
import os
import subprocess
import time
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.peers import Adapter
from hotrow.bench.train import source_of
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.loader import Loader
from hotrow.errors import HotrowError

SCRIPT = Path(__file__).with_name("paddle_ps.py")
ANSWER_S = 600.0  # for a start with ten million rows, and for a stretch
END_S = 60.0  # it ends four processes of its own first
LAST_LINES = 14  # of a script that failed


class PaddlePeer:
    """The script, started and told when a round begins. `python` is the one of the environment that has Paddle."""

    def __init__(self, python: Path, plan: TrainPlan, dim: int, hidden: tuple[int, ...], file: Path) -> None:
        self.loss = float("nan")  # mean over the last stretch
        self._folder = TemporaryDirectory(prefix="hotrow-paddle-")
        folder = Path(self._folder.name)
        rows = write_arrays(file, folder / "rows.npz")
        options = {
            "--data": folder / "rows.npz",
            "--dim": dim,
            "--hidden": ",".join(map(str, hidden)),
            "--samples": plan.samples,
            "--steps": plan.steps,
            "--rounds": rows // plan.segment,
        }
        self._log = folder / "script.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), str(SCRIPT), "--interactive", *(str(part) for pair in options.items() for part in pair)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def segment(self, turn: int) -> float:
        """Train on the stretch of a round; gives its seconds until the slower trainer is done."""
        assert self._process.stdin is not None
        start = time.perf_counter()
        try:
            self._process.stdin.write(f"go {turn}\n")
        except BrokenPipeError:
            raise self._failed() from None
        answer = self._answer()
        seconds = time.perf_counter() - start
        self.loss = float(answer["loss"])
        return seconds

    def close(self) -> None:
        """End the script, which ends its processes; a second call does nothing."""
        self._end()
        self._folder.cleanup()

    def __enter__(self) -> "PaddlePeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        if not wait([pipe.fileno()], timeout=ANSWER_S):
            raise HotrowError(f"Paddle's script gave no answer within {ANSWER_S:.0f} s")
        if not (line := pipe.readline()):
            raise self._failed()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self) -> HotrowError:
        status = self._end()
        lines = "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:])
        return HotrowError(f"Paddle's script ended with status {status}: {lines or 'it wrote nothing'}")

    def _end(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # what it ends at
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._process.stdout.close()


def write_arrays(file: Path, path: Path) -> int:
    """The rows of a benchmark's file as arrays in an .npz; gives how many there are."""
    batches = [batch for _, batch in Loader(source_of(file), 1 << 16)]
    ids = [batch.parts[0].keys.reshape(len(batch), -1) for batch in batches]
    labels = [batch.labels for batch in batches if batch.labels is not None]
    numbers = np.concatenate([batch.numbers for batch in batches])
    np.savez(path, ids=np.concatenate(ids), numbers=numbers, labels=np.concatenate(labels).reshape(-1))
    return len(numbers)


class PaddleCluster:
    """The peer, timed over whole stretches."""

    def __init__(self, plan: ClusterPlan, dim: int, hidden: tuple[int, ...], file: Path) -> None:
        self._steps = plan.steps
        self._peer = PaddlePeer(paddle_python(), plan.train, dim, hidden, file)

    def step_s(self, turn: int) -> float:
        return self._peer.segment(turn) / self._steps

    def close(self) -> None:
        self._peer.close()


def paddle_python() -> Path:
    return Path(os.environ.get("HOTROW_PADDLE_PYTHON") or "paddle/bin/python")


def lack() -> str | None:
    """What is missing to run Paddle here."""
    python = paddle_python()
    remedy = "make an environment with Paddle and name its Python in HOTROW_PADDLE_PYTHON"
    return None if python.exists() else f"{python}: is not there: {remedy}"


ADAPTER = Adapter(name="paddle", title="Paddle's parameter server", versions={}, lack=lack, cluster=PaddleCluster)
