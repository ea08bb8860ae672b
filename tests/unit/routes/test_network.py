"""Pushes between nodes, by arithmetic."""

import pytest

from hotrow.errors import ConfigError
from hotrow.routes import NodeNetwork


def test_each_node_sends_what_the_others_own() -> None:
    network = NodeNetwork(nic_gbps=10, uplinks=2, pcie_gbps=20)
    assert network.rdma_s(2, 10**9) == pytest.approx(0.05)
    assert network.rdma_s(4, 10**9) == pytest.approx(0.075)
    assert network.host_s(2, 10**9) == pytest.approx(0.5 / 40 + 0.5 / 10 + 0.5 / 40)
    assert network.saved(2, 10**9) == pytest.approx(network.saved(4, 5)) == pytest.approx(1 / 3)


def test_pcie_limits_rdma_where_the_interface_is_faster() -> None:
    assert NodeNetwork(nic_gbps=50, uplinks=1, pcie_gbps=10).rdma_s(2, 2 * 10**9) == pytest.approx(0.1)


@pytest.mark.parametrize("saved", [0.5, 0.84, 0.87, 0.99])
def test_the_rate_of_the_stack_that_gives_a_figure_gives_that_figure(saved: float) -> None:
    rate = NodeNetwork().stack_gbps_for(saved)
    assert NodeNetwork(socket_stack_gbps=rate).saved(2, 10**9) == pytest.approx(saved)


def test_what_cannot_be_gets_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^nodes=1: must be 2 or more"):
        NodeNetwork().rdma_s(1, 10)
    with pytest.raises(ConfigError, match=r"^saved=0.2: must be from 0.442"):
        NodeNetwork().stack_gbps_for(0.2)
    with pytest.raises(ConfigError, match=r"^saved=1: must be"):
        NodeNetwork().stack_gbps_for(1.0)
    with pytest.raises(ConfigError, match=r"^NodeNetwork.nic_gbps=0: must be above 0"):
        NodeNetwork(nic_gbps=0)
    with pytest.raises(ConfigError, match=r"^NodeNetwork.uplinks=0: must be 1 or more"):
        NodeNetwork(uplinks=0)
