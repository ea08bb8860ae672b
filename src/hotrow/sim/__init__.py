"""A cluster in virtual time: thousands of workers, injected faults, the disciplines of `hotrow.modes` as they are."""

from hotrow.sim.checkers import BrokenPromise, Checkers
from hotrow.sim.cluster import SimCluster
from hotrow.sim.config import ClusterConfig
from hotrow.sim.faults import Crash, Faults, Join, Messages, Pause, drawn_faults
from hotrow.sim.leases import Batches, Counted, Lease, Source
from hotrow.sim.meter import Lane
from hotrow.sim.network import Network
from hotrow.sim.result import SimResult, WorkerResult
from hotrow.sim.speeds import Constant, Exponential, Load, LogNormal, NormalRate, Speeds, Stragglers
from hotrow.sim.trace import Trace
from hotrow.sim.work import CountingWork, Wire, Work

__all__ = [
    "Batches",
    "BrokenPromise",
    "Checkers",
    "ClusterConfig",
    "Constant",
    "Counted",
    "CountingWork",
    "Crash",
    "Exponential",
    "Faults",
    "Join",
    "Lane",
    "Lease",
    "Load",
    "LogNormal",
    "Messages",
    "Network",
    "NormalRate",
    "Pause",
    "SimCluster",
    "SimResult",
    "Source",
    "Speeds",
    "Stragglers",
    "Trace",
    "Wire",
    "Work",
    "WorkerResult",
    "drawn_faults",
]
