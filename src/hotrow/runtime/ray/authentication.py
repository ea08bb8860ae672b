"""Who may use a Ray: Ray's own token authentication.

Whoever Ray takes for one of its own can run code as the user who started it. A Ray of the run's own asks for a random
token that only its processes have, in their environment. Another Ray does as its owner decided.
"""

import ipaddress
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import ray

from hotrow.errors import ConfigError

SINCE = "2.52"  # of Ray: older ones know no token

_raylet: Any = import_module("ray._raylet")  # Ray's native module: it has no types
_log = logging.getLogger("hotrow.runtime")


def check_supported() -> None:
    """ConfigError where this Ray knows no token."""
    if not hasattr(_raylet, "AuthenticationTokenLoader"):
        message = f"ray {ray.__version__}: has no token authentication, and lets whoever reaches it run code"
        raise ConfigError(f"{message}: install ray {SINCE} or later")


@contextmanager
def token_authentication() -> Iterator[None]:
    """A token for the Ray that is started inside. What the environment said before is restored afterwards."""
    check_supported()
    try:
        with environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_AUTH_TOKEN_PATH=None):
            _reload()
            yield
    finally:
        _reload()


@contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set variables of this process and its children; None removes one. They are restored afterwards."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def check_token(address: str) -> None:
    """ConfigError where the Ray at `address` refuses what this process has to show."""
    from ray.exceptions import AuthenticationError  # which an old Ray does not have

    try:
        _raylet.GcsClient(address=address)
    except AuthenticationError:
        message = f"engine.address={address!r}: this Ray asks for a token, and this process has another or none"
        remedy = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as where it was started"
        raise ConfigError(f"{message}: {remedy}") from None


def warn_if_open(address: str) -> None:
    """Log a warning if the Ray at `address`, to which this process is connected, lets everybody in.

    A client cannot ask for a cluster's mode. But one that authenticates asks for a token, and this process has shown
    none where its own mode is "disabled".
    """
    if _raylet.get_authentication_mode() == _raylet.AuthenticationMode.DISABLED and not _is_loopback(address):
        _log.warning(
            "the Ray at %s asks for no token: whoever reaches it can run code as the user of this run: "
            "start it with RAY_AUTH_MODE=token, and set that and its token here",
            address,
        )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:  # a name: it may be resolved differently elsewhere
        return False


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _reload() -> None:
    """Ray keeps mode and token once it has read them. The mode goes first: in token mode a token must be there."""
    _raylet.Config.initialize("")
    _raylet.AuthenticationTokenLoader.instance().reset_cache()
