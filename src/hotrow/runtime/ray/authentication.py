"""Ray's token authentication, which decides which processes may use a Ray.

Any process that Ray accepts can run code as the user that started it. A Ray that is started for a run requires a random
token, which only the processes of the run have, in their environment. Any other Ray does as it was configured.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import ray
from ray.exceptions import RayError

from hotrow.errors import ConfigError

SINCE = "2.52"  # of Ray: older versions have no tokens
ANSWER_MS = 5000  # for a Ray whose port has accepted a connection
REMEDY = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as where it was started"

_raylet: Any = import_module("ray._raylet")  # Ray's native module: it has no types
_log = logging.getLogger("hotrow.runtime")


def check_supported() -> None:
    """ConfigError where this version of Ray has no tokens."""
    if not hasattr(_raylet, "AuthenticationTokenLoader"):
        message = f"ray {ray.__version__}: has no token authentication: any process that reaches it can run code"
        raise ConfigError(f"{message}: install ray {SINCE} or later")


@contextmanager
def token_authentication() -> Iterator[None]:
    """A token for the Ray that is started inside. The environment is restored afterwards."""
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


def check_has_token(address: str) -> None:
    """ConfigError where RAY_AUTH_MODE requires a token and none can be loaded: Ray would abort the process."""
    from ray.exceptions import AuthenticationError  # which an old Ray does not have

    _reload()
    if _raylet.get_authentication_mode() == _raylet.AuthenticationMode.TOKEN:
        with suppress(AuthenticationError):  # there is none, or its file cannot be read
            if _raylet.AuthenticationTokenLoader.instance().has_token():
                return
        message = f"engine.address={address!r}: RAY_AUTH_MODE is 'token', and this process has no token"
        raise ConfigError(f"{message}: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as where that Ray was started")


def check_token(address: str) -> None:
    """ConfigError where the Ray at `address` refuses the token of this process, OSError where no Ray answers."""
    from ray.exceptions import AuthenticationError

    try:
        _raylet.InnerGcsClient.standalone(address, None, ANSWER_MS)
    except AuthenticationError:
        message = f"engine.address={address!r}: this Ray requires a token, and this process has another or none"
        raise ConfigError(f"{message}: {REMEDY}") from None
    except RayError as error:
        raise ConnectionError(str(error)) from None


def warn_if_open(address: str) -> None:
    """Log a warning if the Ray at `address`, to which this process is connected, requires no token.

    On loopback too: every user of the host reaches it there. A client cannot query a cluster's mode. But one that
    authenticates requires a token, and this process has shown none where its own mode is "disabled".
    """
    if _raylet.get_authentication_mode() == _raylet.AuthenticationMode.DISABLED:
        _log.warning(
            "the Ray at %s requires no token: any process that reaches it can run code as the user of this run: "
            "start it with RAY_AUTH_MODE=token, and set that and its token here",
            address,
        )


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
