"""A wrong address or a missing token of Ray is one sentence, and soon; `auto` never takes the Ray of another run."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("ray")
from hotrow.errors import ConfigError
from hotrow.runtime.ray import address

pytestmark = pytest.mark.ray

CONNECT = """
import sys
import hotrow as hr
from hotrow.runtime.ray.connection import connect_ray
for given in sys.argv[1:]:
    try:
        with connect_ray(hr.Ray(address=given)):
            print("connected")
    except hr.ConfigError as error:
        print(error)
"""


@contextmanager
def server(answer: bytes | None) -> Iterator[int]:
    """A program that is no Ray, by its port; None: it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections: list[socket.socket] = []

        def serve() -> None:
            connections.append(listening.accept()[0])
            if answer is not None:
                with suppress(OSError):  # the other side may have read enough and left
                    connections[0].recv(1024)
                    connections[0].sendall(answer)
                    connections[0].shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()
            for connection in connections:
                connection.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None], ids=["http", "closed", "silent"])
def test_a_port_of_another_program_is_told_soon(answer: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "CONNECT_S", 0.2)
    with server(answer) as port, pytest.raises(OSError, match=r"another program listens on this port|timed out"):
        address.check_answers(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "token",
    [{}, pytest.param({"RAY_AUTH_TOKEN_PATH": "/nowhere/token"}, marks=pytest.mark.slow)],
    ids=["none", "no file"],
)
def test_a_missing_token_is_a_sentence_before_anything_is_asked(token: dict[str, str], tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    variables = {**kept, "HOME": str(tmp_path), "RAY_AUTH_MODE": "token", **token}
    command = [sys.executable, "-c", CONNECT, "127.0.0.1:9", "auto"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60)
    sentence = "RAY_AUTH_MODE is 'token', and this process has no token: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    for given, line in zip(("127.0.0.1:9", "auto"), done.stdout.splitlines(), strict=True):
        assert f"engine.address='{given}': {sentence}" in line, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("running", "latest", "chosen"),
    [
        ({"own:1"}, None, None),
        ({"own:1", "theirs:2"}, None, "theirs:2"),
        ({"own:1", "theirs:2", "third:3"}, "third:3", "third:3"),
        ({"own:1"}, "far:4", "far:4"),
    ],
)
def test_auto_never_takes_the_ray_of_a_run(
    running: set[str], latest: str | None, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(address, "_private_addresses", lambda: ["own:1"])
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", lambda: running)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda _: latest)
    if chosen is None:
        with pytest.raises(ConfigError, match=r"'auto': no Ray runs on this machine that a run could join: start one"):
            address.resolve("auto")
    else:
        assert address.resolve("auto") == chosen
    monkeypatch.setenv("RAY_ADDRESS", "own:1")  # named, so taken
    assert address.resolve("auto") == "own:1"
