"""A role as Ray runs it: once it has closed everything, a SIGTERM ends its process without a traceback."""

import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")
from hotrow.runtime.ray.actors import TransportSettings, _Role

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
