"""The addresses under which roles reach each other: their own, or those of proxies in between.

`hotrow chaos` delays and cuts connections this way. A cluster takes the route that is set when it starts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from hotrow.types import RoleId

Route: TypeAlias = Callable[[RoleId, str], str]  # (role, its own address) -> the address that others get


def direct(_: RoleId, address: str) -> str:
    """No proxy."""
    return address


_route: ContextVar[Route] = ContextVar("route", default=direct)


def current_route() -> Route:
    """The route of a cluster that starts now."""
    return _route.get()


@contextmanager
def routed(route: Route) -> Iterator[None]:
    """Clusters that start inside use this route, also for roles that join later."""
    token = _route.set(route)
    try:
        yield
    finally:
        _route.reset(token)
