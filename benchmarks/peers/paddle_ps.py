"""Paddle's parameter server (paddlepaddle 2.6.2, its last release with one): two servers, two trainers, a DeepFM.

It runs in an environment of its own and imports nothing of Hotrow:

    python -m venv paddle && paddle/bin/pip install paddlepaddle==2.6.2 'numpy<2' 'protobuf==4.25.*'
    paddle/bin/python paddle_ps.py --data FILE.npz --dim 16 --hidden 64,32 --samples 4096 --steps 24 --rounds 9

FILE.npz holds ids [n, features] (int64), numbers [n, numbers] and labels [n] (both float32) for all rounds, one after
the other; it is read before the first round. In every round each trainer takes every second batch of samples // 2 rows,
and the seconds run until the slower one is done. With --interactive a round starts at a line "go" (or "go 7", which
names the round) and is answered by a JSON line; the last JSON line holds the seconds of a step in all rounds.

Mode a_sync: rows are pulled and their gradients pushed in every step, dense gradients are pushed without waiting, and
parameters are pulled after the step. Rows are made when they are first pulled. Adagrad has a moment for every element
and is Paddle's own, whose moments start at 3.
"""

import argparse
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SERVERS, TRAINERS = 2, 2
ANSWER_S, END_S = 600.0, 10.0
LAST_LINES = 12  # of a process that failed
RATE, DENSE_RATE, RANGE = 0.05, 0.001, 0.01
TABLE = "rows"


def main() -> None:
    options = arguments()
    if options.role == "control":
        with TemporaryDirectory(prefix="paddle-ps-") as folder, contextlib.closing(Cluster(Path(folder))) as cluster:
            control(options, cluster)
    else:
        take_part(options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--hidden", default="64,32", help="widths of the layers")
    parser.add_argument("--samples", type=int, default=4096, help="of a step of all trainers together")
    parser.add_argument("--steps", type=int, default=24, help="of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--interactive", action="store_true")
    parser.add_argument("--role", choices=["control", "PSERVER", "TRAINER"], default="control", help=argparse.SUPPRESS)
    return parser.parse_args()


def control(options: argparse.Namespace, cluster: "Cluster") -> None:
    """Start the others and tell them when a round begins."""
    cluster.start()
    seconds: list[float] = []
    losses: list[float] = []
    if options.interactive:
        say({"ready": True})
    for turn in turns(options):
        begin = time.perf_counter()
        answers = cluster.ask(turn)
        seconds.append((time.perf_counter() - begin) / options.steps)
        losses.append(sum(answer["loss"] for answer in answers) / TRAINERS)
        if options.interactive:
            say({"round": turn, "seconds": seconds[-1], "loss": losses[-1]})
    say({"seconds": seconds, "loss": losses, "mode": "a_sync"})


def turns(options: argparse.Namespace) -> Iterator[int]:
    """Numbers of rounds: one for each line "go 7", or "go" for the next."""
    if not options.interactive:
        yield from range(options.rounds)
        return
    for place in range(options.rounds):
        if not (line := sys.stdin.readline()):
            return
        yield int([*line.split(), str(place)][1])


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


class Cluster:
    """Servers and trainers as processes of this machine; a trainer answers lines by lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._trainers = [f"TRAINER-{index}" for index in range(TRAINERS)]

    def start(self) -> None:
        ports = free_ports(SERVERS + TRAINERS)
        for index in range(SERVERS):
            self._start("PSERVER", index, ports)
        for index, trainer in enumerate(self._trainers):  # one after the other: the first fills the servers
            self._start("TRAINER", index, ports)
            self._answer(trainer)

    def ask(self, turn: int) -> list[dict[str, Any]]:
        for trainer in self._trainers:
            pipe = self._processes[trainer].stdin
            assert pipe is not None
            pipe.write(f"{turn}\n")
            pipe.flush()
        return [self._answer(trainer) for trainer in self._trainers]

    def close(self) -> None:
        for trainer in self._trainers:
            if trainer in self._processes and (pipe := self._processes[trainer].stdin) is not None:
                pipe.close()  # at which it ends
        for name, process in reversed(self._processes.items()):
            try:
                process.wait(END_S if name in self._trainers else 0)  # servers wait for ever
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, role: str, index: int, ports: list[int]) -> None:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        environment = {
            "TRAINING_ROLE": role,
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(addresses[:SERVERS]),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(addresses[SERVERS:]),
            "PADDLE_TRAINERS_NUM": str(TRAINERS),
            "PADDLE_TRAINER_ID": str(index),
            "POD_IP": "127.0.0.1",
            "PADDLE_PORT": str(ports[index if role == "PSERVER" else SERVERS + index]),
            "PADDLE_WITH_GLOO": "0",
            "OMP_NUM_THREADS": "1",
            "CPU_NUM": "1",
        }
        with (self._folder / f"{role}-{index}.log").open("wb") as log:
            self._processes[f"{role}-{index}"] = subprocess.Popen(
                [sys.executable, __file__, *sys.argv[1:], "--role", role],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )

    def _answer(self, trainer: str) -> dict[str, Any]:
        """The next line of a trainer, unless anybody ends before."""
        pipe = self._processes[trainer].stdout
        assert pipe is not None
        deadline = time.monotonic() + ANSWER_S
        while not select.select([pipe], [], [], 1.0)[0]:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise SystemExit(self._epitaph(name))
            if time.monotonic() > deadline:
                raise SystemExit(f"{trainer}: no answer within {ANSWER_S:.0f} s")
        line = pipe.readline()
        if not line:
            raise SystemExit(self._epitaph(trainer))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _epitaph(self, name: str) -> str:
        process = self._processes[name]
        process.wait(END_S)
        lines = (self._folder / f"{name}.log").read_text(errors="replace").splitlines()[-LAST_LINES:]
        return f"{name} ended with status {process.returncode}:\n" + "\n".join(lines)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


# What follows runs in servers and trainers. Paddle writes to standard output: that goes to the log.


def take_part(options: argparse.Namespace) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import numpy as np
    import paddle
    from paddle.distributed import fleet

    paddle.enable_static()
    fleet.init(is_collective=False)
    with np.load(options.data) as data:
        widths = data["ids"].shape[1], data["numbers"].shape[1]
    loss = deepfm(paddle, options.dim, [int(width) for width in options.hidden.split(",")], *widths)
    optimizer = paddle.optimizer.Adam(DENSE_RATE)
    fleet.distributed_optimizer(optimizer, strategy(fleet)).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    batches, pull = Batches(options, fleet.worker_index()), dense_puller(paddle, fleet)
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        losses = []
        for feed in batches.of(int(line)):
            (found,) = executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
            losses.append(float(found))
            pull()
        print(json.dumps({"loss": sum(losses) / len(losses)}), file=answers)
    fleet.stop_worker()


def deepfm(paddle: Any, dim: int, hidden: list[int], features: int, numbers: int) -> Any:
    """The loss of a DeepFM: the first float of a row is its weight, the others its vector; the network sees all."""
    ids = [paddle.static.data(f"id_{place}", [None, 1], "int64") for place in range(features)]
    dense = paddle.static.data("numbers", [None, numbers], "float32")
    labels = paddle.static.data("labels", [None, 1], "float32")
    first = paddle.ParamAttr(name=TABLE, initializer=paddle.nn.initializer.Uniform(-RANGE, RANGE))
    found = [paddle.static.nn.sparse_embedding(each, size=[1, dim], param_attr=first) for each in ids]  # 1: it grows
    flat = paddle.concat([paddle.reshape(each, [-1, dim]) for each in found], axis=1)
    rows = paddle.reshape(flat, [-1, features, dim])
    weights, vectors = rows[:, :, 0], rows[:, :, 1:]
    total = paddle.sum(vectors, axis=1)
    pairs = paddle.sum(total * total, axis=1) - paddle.sum(vectors * vectors, axis=[1, 2])
    deep = paddle.concat([flat, dense], axis=1)
    for width in hidden:
        deep = paddle.static.nn.fc(deep, width, activation="relu")
    odds = paddle.static.nn.fc(deep, 1) + paddle.static.nn.fc(dense, 1)
    odds = odds + paddle.reshape(paddle.sum(weights, axis=1) + 0.5 * pairs, [-1, 1])
    return paddle.nn.functional.binary_cross_entropy_with_logits(odds, labels)


def strategy(fleet: Any) -> Any:
    """Asynchronous, with an Adagrad that has a moment for every element."""
    accessor = f"table_parameters.{TABLE}.accessor"
    rules: dict[str, str | float] = {}
    for part in ("embed_sgd_param", "embedx_sgd_param"):  # the first float of a row, and the others
        rules[f"{accessor}.{part}.name"] = "StdAdaGradSGDRule"
        rules[f"{accessor}.{part}.adagrad.learning_rate"] = RATE
        rules[f"{accessor}.{part}.adagrad.initial_range"] = RANGE
    table = {
        f"table_parameters.{TABLE}.table_class": "MemorySparseTable",
        f"{accessor}.accessor_class": "SparseAccessor",
    }
    chosen = fleet.DistributedStrategy()
    chosen.a_sync = True
    chosen.sparse_table_configs = {TABLE: table | rules}
    return chosen


def dense_puller(paddle: Any, fleet: Any) -> Callable[[], object]:
    """Takes the network's parameters from the servers: Executor.run sends gradients there and takes nothing back."""
    from paddle.distributed.ps.utils.public import get_the_one_recv_context

    runtime = fleet.fleet._runtime_handle
    names = get_the_one_recv_context(runtime.context)
    return lambda: runtime._pull_all_dense([paddle.static.global_scope()], runtime._send_ctx, names)


class Batches:
    """This trainer's share of the file."""

    def __init__(self, options: argparse.Namespace, index: int) -> None:
        import numpy as np

        self._share, self._segment, self._index = options.samples // TRAINERS, options.samples * options.steps, index
        with np.load(options.data) as data:
            columns = np.ascontiguousarray(data["ids"].T)[:, :, None]
            self._data = {f"id_{place}": column for place, column in enumerate(columns)}
            self._data |= {"numbers": data["numbers"], "labels": data["labels"][:, None]}

    def of(self, turn: int) -> Iterator[dict[str, Any]]:
        first = turn * self._segment + self._index * self._share
        for start in range(first, (turn + 1) * self._segment, TRAINERS * self._share):
            yield {name: whole[start : start + self._share] for name, whole in self._data.items()}


if __name__ == "__main__":
    main()
