"""What is to be known of a cluster from outside: its roles and where they are, and how to talk to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotrow.transport.security import ClusterKey, Security
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True)
class RoleAddress:
    """Where a role listens, and the process it is."""

    address: str
    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as it stands. Without a key there is no security."""

    security: Security
    key: ClusterKey | None
    roles: Mapping[RoleId, RoleAddress]
    lost: Mapping[str, str] = field(default_factory=dict)  # who of them has ended, and why
