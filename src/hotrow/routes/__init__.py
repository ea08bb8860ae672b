"""Two-phase routes between the GPUs of a node: pairs without a link exchange bytes through a middleman GPU. Pure.

`fabric` has the links, `middlemen` the search, `plan` the schedule with its times, `execute` performs it by copies that
the caller gives, `nvidia_topology` reads `nvidia-smi topo -m`, and `network` is arithmetic on pushes between nodes.
"""

from hotrow.routes.execute import PeerCopy, execute
from hotrow.routes.fabric import Fabric, HostPaths, Pair
from hotrow.routes.network import NodeNetwork
from hotrow.routes.nvidia_topology import NvidiaTopology, parse_nvidia_topology
from hotrow.routes.plan import Block, Copy, ForwardBuffer, Phase, Route, RoutePlan, plan_routes

__all__ = [
    "Block",
    "Copy",
    "Fabric",
    "ForwardBuffer",
    "HostPaths",
    "NodeNetwork",
    "NvidiaTopology",
    "Pair",
    "PeerCopy",
    "Phase",
    "Route",
    "RoutePlan",
    "execute",
    "parse_nvidia_topology",
    "plan_routes",
]
