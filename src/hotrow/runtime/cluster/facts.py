"""The roles of a cluster, their addresses, and the security of connections to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId, Security


@dataclass(frozen=True, slots=True)
class RoleAddress:
    """The address of a role, and its process."""

    address: str
    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The current state of a cluster. Without a key there is no security."""

    security: Security
    key: ClusterKey | None
    roles: Mapping[RoleId, RoleAddress]
    lost: Mapping[RoleId, str] = field(default_factory=dict)  # roles that have ended, with the reason
    unhandled: Mapping[RoleId, str] = field(default_factory=dict)  # losses that the training loop has not handled
