"""Pushes from the GPUs of a node to other nodes, with GPUDirect RDMA and over memory of the host: arithmetic only.

Rows are spread evenly over the nodes, so of n nodes each sends (n - 1) / n of its bytes to the others.
"""

from dataclasses import dataclass

from hotrow.errors import ConfigError
from hotrow.routes.fabric import GB, PCIE_GBPS, check_rate


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """A node with network interfaces beside its GPUs. Rates are in GB/s per direction."""

    nic_gbps: float = 12.5  # 100 Gb/s
    uplinks: int = 2  # of PCIe switches with GPUs
    pcie_gbps: float = PCIE_GBPS
    socket_stack_gbps: float | None = None  # sockets between memory and wire; None: as fast as the interface

    def __post_init__(self) -> None:
        for name in ("nic_gbps", "pcie_gbps", "socket_stack_gbps"):
            if getattr(self, name) is not None:
                check_rate(f"NodeNetwork.{name}", getattr(self, name))
        if self.uplinks < 1:
            raise ConfigError(f"NodeNetwork.uplinks={self.uplinks}: must be 1 or more")

    def sent_bytes(self, nodes: int, size: int) -> float:
        """What leaves a node of a push of `size` bytes."""
        if nodes < 2:
            raise ConfigError(f"nodes={nodes}: must be 2 or more: a single node sends nothing to others")
        return size * (nodes - 1) / nodes

    def rdma_s(self, nodes: int, size: int) -> float:
        """The interface reads and writes memory of the GPUs."""
        return self.sent_bytes(nodes, size) / (min(self.nic_gbps, self._uplinks_gbps) * GB)

    def host_s(self, nodes: int, size: int) -> float:
        """Copies to memory of the host, over the network, and up to the GPUs there, one after the other."""
        wire = min(self.nic_gbps, self.socket_stack_gbps or self.nic_gbps)
        return self.sent_bytes(nodes, size) * (2 / self._uplinks_gbps + 1 / wire) / GB

    def saved(self, nodes: int, size: int) -> float:
        """The share of the time over the host that RDMA saves."""
        return 1 - self.rdma_s(nodes, size) / self.host_s(nodes, size)

    def stack_gbps_for(self, saved: float) -> float:
        """The rate of the socket stack with which RDMA saves this share."""
        rdma, copies = 1 / min(self.nic_gbps, self._uplinks_gbps), 2 / self._uplinks_gbps
        least = 1 - rdma / (copies + 1 / self.nic_gbps)
        if not least <= saved < 1:
            raise ConfigError(
                f"saved={saved:g}: must be from {least:.3f}, with a stack as fast as the wire, to below 1"
            )
        return 1 / (rdma / (1 - saved) - copies)

    @property
    def _uplinks_gbps(self) -> float:
        return self.uplinks * self.pcie_gbps
