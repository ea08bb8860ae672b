"""The server behind a trainer of this process."""

from hotrow.runtime import LocalBackend
from hotrow.server.core import ParameterServer
from hotrow.trainer import Trainer


def server_of(trainer: Trainer) -> ParameterServer:
    site = trainer._loop.backend
    assert isinstance(site, LocalBackend)
    return site.server
