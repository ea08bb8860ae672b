"""A role as Ray runs it: once it has closed everything, a SIGTERM ends its process without a traceback."""

import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")
from hotrow.errors import InputError
from hotrow.runtime.ray.actor_pool import ActorPool
from hotrow.runtime.ray.actors import TransportSettings, _Role
from hotrow.runtime.ray.cluster import RayCluster
from hotrow.transport.messages import Stop

pytestmark = pytest.mark.ray


class Served:
    """Has nothing to serve."""

    def serve(self) -> None:
        pass


@pytest.fixture
def handler() -> Iterator[None]:
    """As Ray sets one: it raises in whatever Python code runs next."""
    before = signal.signal(signal.SIGTERM, lambda *_: exit(1))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handler")
def test_a_role_that_has_closed_leaves_sigterm_to_the_system() -> None:
    server = TransportSettings(security="off").server("127.0.0.1", "shard 0")
    _Role(server, Served()).serve()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class Closing:
    """Notes that it was closed, and fails then."""

    def __init__(self, closed: list[str], name: str) -> None:
        self.closed, self.name = closed, name

    def close(self) -> None:
        self.closed.append(self.name)
        raise OSError(f"{self.name} did not close")


@pytest.mark.usefixtures("handler")
def test_a_role_closes_everything_whatever_fails_meanwhile() -> None:
    server, closed = TransportSettings(security="off").server("127.0.0.1", "shard 0"), list[str]()
    with pytest.raises(OSError, match="second did not close"):
        _Role(server, Served(), Closing(closed, "first"), Closing(closed, "second")).serve()
    assert closed == ["first", "second"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_cluster_gives_its_sockets_back_where_ray_fails_at_the_end() -> None:
    class FailingPool(ActorPool):
        def close(self, wait_s: float) -> None:
            raise OSError("Ray is gone")

    lines = TransportSettings(security="off")
    cluster = object.__new__(RayCluster)
    cluster._actors, cluster.rpc = FailingPool(lines, None, lambda role, number: {}), lines.rpc_client()
    with pytest.raises(OSError, match="Ray is gone"):
        cluster.close()
    with pytest.raises(InputError, match="closed"):
        cluster.rpc.request("shard 0", Stop())
