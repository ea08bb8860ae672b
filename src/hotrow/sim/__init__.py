"""A cluster in virtual time: thousands of workers, injected faults, the disciplines of `hotrow.modes` unchanged."""

from hotrow.sim.checkers import BrokenPromise, Checkers
from hotrow.sim.cluster import SimCluster
from hotrow.sim.config import ClusterConfig
from hotrow.sim.faults import Crash, Faults, Join, Messages, Pause, ShardCrash, drawn_faults
from hotrow.sim.leases import Batches, Counted, SimLease, SimSource
from hotrow.sim.meter import Lane
from hotrow.sim.network import Network
from hotrow.sim.result import SimResult, WorkerResult
from hotrow.sim.speeds import ConstantSpeed, Exponential, Load, LogNormal, NormalRate, Speeds, Stragglers
from hotrow.sim.trace import Trace
from hotrow.sim.work import BatchBytes, CountingWork, SimWork

__all__ = [
    "BatchBytes",
    "Batches",
    "BrokenPromise",
    "Checkers",
    "ClusterConfig",
    "ConstantSpeed",
    "Counted",
    "CountingWork",
    "Crash",
    "Exponential",
    "Faults",
    "Join",
    "Lane",
    "Load",
    "LogNormal",
    "Messages",
    "Network",
    "NormalRate",
    "Pause",
    "ShardCrash",
    "SimCluster",
    "SimLease",
    "SimResult",
    "SimSource",
    "SimWork",
    "Speeds",
    "Stragglers",
    "Trace",
    "WorkerResult",
    "drawn_faults",
]
