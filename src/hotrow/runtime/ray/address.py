"""The address of a running Ray: which one `auto` is, and whether a Ray answers there.

Ray itself retries an address for minutes, and takes any Ray on the machine for `auto`, also that of another run.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ray._private import services

from hotrow.errors import ConfigError
from hotrow.runtime.ray.authentication import check_token
from hotrow.runtime.ray.private_dir import is_private_dir

CONNECT_S = 10.0  # for a host to answer
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and an empty SETTINGS frame
FRAME_HEADER_BYTES, SETTINGS = 9, 4  # a server begins with a SETTINGS frame too; its type is the fourth byte
GCS_ADDRESS, TEMP_DIR = "--gcs-address=", "--temp-dir="


def resolve(address: str) -> str:
    """The address that `auto` means:

    RAY_ADDRESS, else a Ray on this machine that is not private to a run. Others stay as given.
    """
    if address != "auto":
        return address
    private = set(_private_addresses())
    try:
        found = str(services.get_ray_address_from_environment("auto", None))
        if found in private and not os.environ.get("RAY_ADDRESS"):
            found = _other_than(private)
    except ConnectionError:
        message = "engine.address='auto': no Ray runs on this machine that a run could join"
        raise ConfigError(f"{message}: start one with `ray start --head`, or leave the address out") from None
    return found


def check_answers(address: str) -> None:
    """OSError where no Ray answers, ConfigError where it refuses the token of this process."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdigit():
        _check_http2(host.strip("[]"), int(port))
        check_token(address)


def _check_http2(host: str, port: int) -> None:
    """Ray's control store uses gRPC, which is HTTP/2: another server is recognized in one exchange."""
    with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return  # the exchange would have to be encrypted
        connection.sendall(HTTP2_PREFACE)
        header = b""
        while len(header) < FRAME_HEADER_BYTES and (part := connection.recv(FRAME_HEADER_BYTES - len(header))):
            header += part
    if len(header) < FRAME_HEADER_BYTES or header[3] != SETTINGS:
        raise ConnectionError("another program listens on this port")


def _other_than(private: set[str]) -> str:
    """Ray's choice, without the Rays that belong to runs."""
    others: list[str] = sorted(services.find_gcs_addresses() - private)  # type: ignore[no-untyped-call]
    latest = services.find_bootstrap_address(None)  # of the last `ray start`
    if latest is not None and latest not in private and len(others) != 1:
        return str(latest)
    if not others:
        raise ConnectionError
    return others[0]


def _private_addresses() -> Iterator[str]:
    """Of the Rays on this machine that belong to one run each; their processes name their directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            arguments = (process / "cmdline").read_text(errors="replace").split("\0")
            if Path(arguments[0]).name == "raylet":
                directory = _value_of(TEMP_DIR, arguments)
                address = _value_of(GCS_ADDRESS, arguments)
                if directory and address and is_private_dir(Path(directory)):
                    yield address


def _value_of(option: str, arguments: list[str]) -> str | None:
    """Arguments of a raylet may be commands themselves, as those of its workers."""
    words = (word for argument in arguments for word in argument.split(" "))
    return next((word.removeprefix(option) for word in words if word.startswith(option)), None)
