"""Other systems as contestants of `hotrow bench`: what each has to offer, and how a file with an adapter is loaded.

The package knows plain torch only (torch_peers.py). Adapters of other systems are files that a user names by --peer;
those of FBGEMM, TorchRec, Paddle and RocksDB are in benchmarks/peers of the sources.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError

EPS = 1e-10  # of everyone's Adagrad

# Of contestants and figures of our own: a peer of such a name would take their place.
OWN = (
    "torch",
    "byhand",
    "ours",
    "step",
    "rowwise",
    "find",
    "unique",
    "limit",
    "copy",
    "dense",
    "best",
    "hybrid",
    "sync",
    "ram",
    "tiered",
    "disk",
    "lookup",
)

Part = Literal["store", "training", "cluster", "tiers"]


class StorePeer(Protocol):
    """A table whose rows are numbered from 0 and that does what our step does, in the layout that is fastest for it."""

    values: Tensor  # (rows, dim), the memory that is trained
    state: Tensor

    def step(self, rows: NDArray[np.int64], gradients: Tensor) -> None:
        """Look up `rows`, sum the gradients of duplicate ids (one gradient per id), update with Adagrad."""


class TrainingPeer(Protocol):
    """A table under the DeepFM of `hotrow bench train`; the network is the same module for all."""

    def step(self, batch: Batch) -> None:
        """Train on one batch, whole: lookup, network, both updates."""


class ClusterPeer(Protocol):
    """Several processes that train the DeepFM of `hotrow bench cluster`."""

    def step_s(self, turn: int) -> float:
        """Train on the stretch of a round; gives the seconds of a global batch in it."""

    def close(self) -> None:
        """End the processes; a second call does nothing."""


class TiersPeer(Protocol):
    """A store of rows that are mostly on disk, with Adagrad."""

    def fill(self, keys: NDArray[np.uint64], values: NDArray[np.float32], state: NDArray[np.float32]) -> None:
        """Put whole rows."""

    def settle(self) -> None:
        """All rows are there: bring the store into the form in which it is fastest."""

    def step(self, keys: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        """Look up the rows of a batch, sum the gradients of duplicate ids, update with Adagrad, put the rows back."""

    def close(self) -> None:
        """Remove what is on disk."""


class MakeStorePeer(Protocol):
    def __call__(self, rows: int, dim: int, *, lr: float, rowwise: bool) -> StorePeer:
        """A table with exact Adagrad, or with one moment for a row."""


class MakeTrainingPeer(Protocol):
    def __call__(self, plan: TrainPlan, dim: int, hidden: Hidden, *, rowwise: bool) -> TrainingPeer:
        """A table with exact Adagrad, or with one moment for a row, and the network on top."""


class MakeClusterPeer(Protocol):
    def __call__(self, plan: ClusterPlan, dim: int, hidden: Hidden, file: Path) -> ClusterPeer:
        """Processes that are ready for the first round over `file`."""


class MakeTiersPeer(Protocol):
    def __call__(self, folder: Path, dim: int, *, memory_bytes: int, lr: float, depth: int) -> TiersPeer:
        """An empty store in a new folder, with so much memory, that gives the disk at most `depth` reads at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Another system; None where it takes no part in a benchmark."""

    name: str  # in the keys of figures: step_vs_NAME
    title: str  # in tables for people
    versions: dict[str, str]  # what a file of figures tells the version of: its key there, the installed distribution
    lack: Callable[[], str | None]  # what is missing here, with the remedy; None where it can run
    store: MakeStorePeer | None = None
    training: MakeTrainingPeer | None = None
    cluster: MakeClusterPeer | None = None
    tiers: MakeTiersPeer | None = None


def load_adapters(files: Iterable[Path], part: Part) -> tuple[Adapter, ...]:
    """The adapters in these files; one that cannot run here, or takes no part in this benchmark, is refused."""
    adapters: list[Adapter] = []
    for file in files:
        adapter = _load(file)
        if getattr(adapter, part) is None:
            raise ConfigError(f"--peer {file}: {adapter.title} has no adapter for this benchmark: leave it out")
        if (lack := adapter.lack()) is not None:
            raise ConfigError(f"--peer {file}: {lack}")
        if not re.fullmatch("[a-z][a-z0-9]*", adapter.name) or adapter.name in OWN:
            message = f"its name {adapter.name!r} is not lower-case letters and digits, or is one of {', '.join(OWN)}"
            raise ConfigError(f"--peer {file}: {message}: give it another")
        if adapter.name in (other.name for other in adapters):
            raise ConfigError(f"--peer {file}: a peer named {adapter.name!r} runs already: leave it out")
        adapters.append(adapter)
    return tuple(adapters)


def lines_of(lines: Iterable[tuple[str, ...]], adapters: Iterable[Adapter]) -> list[tuple[str, ...]]:
    """Lines of a report; one with {name} in its key stands once for each adapter."""
    found: list[tuple[str, ...]] = []
    for line in lines:
        if "{name}" in line[0]:
            found += [tuple(cell.format(name=each.name, title=each.title) for cell in line) for each in adapters]
        else:
            found.append(line)
    return found


def versions_of(adapters: Iterable[Adapter]) -> dict[str, str]:
    """The distributions that took part, by their key in a file of figures."""
    return {key: distribution for each in adapters for key, distribution in each.versions.items()}


def _load(file: Path) -> Adapter:
    """Import a file as a module of its own name; its folder is on the path, as that of a script is."""
    adapter = getattr(_module(file), "ADAPTER", None)
    if not isinstance(adapter, Adapter):
        raise ConfigError(f"--peer {file}: defines no ADAPTER, a hotrow.bench.peers.Adapter: see benchmarks/README.md")
    return adapter


def _module(file: Path) -> ModuleType:
    if not file.is_file():
        raise ConfigError(f"--peer {file}: there is no such file")
    name, place = file.stem, file.resolve()
    if not name.isidentifier() or name.startswith("__"):
        raise ConfigError(f"--peer {file}: a module cannot be named {name!r}: rename the file")
    known = importlib.util.find_spec(name)
    if known is not None and Path(known.origin or "").resolve() != place:
        raise ConfigError(f"--peer {file}: there is a module {name!r} already: rename the file")
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a stranger's file does when it is imported
        raise ConfigError(f"--peer {file}: cannot be imported: {type(error).__name__}: {error}") from error
