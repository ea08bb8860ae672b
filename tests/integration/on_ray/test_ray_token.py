"""A Ray of the run's own serves only who has its token, listens on loopback, and leaves nothing behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import ray

import hotrow as hr
from hotrow.runtime.ray.address import _private_addresses
from hotrow.runtime.ray.authentication import warn_if_open
from integration.on_ray.small_cluster import trainer_of
from unit.runtime.test_ray_address import CONNECT

STRANGER = """
import os, sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("ran as", ray.get(ray.remote(lambda: os.getuid()).options(num_cpus=0).remote()))
"""


@pytest.fixture
def address(one_ray: None) -> str:
    return str(ray.get_runtime_context().gcs_address)


def as_stranger(home: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command with no environment but what is given. The user is the same: no other one has more rights here."""
    fast = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the latter: keep 127.0.0.1
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **fast, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)


@pytest.mark.parametrize(
    "shown",
    [{}, pytest.param({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, marks=pytest.mark.slow)],
    ids=["no token", "another token"],
)
def test_who_has_not_the_token_runs_nothing(address: str, tmp_path: Path, shown: dict[str, str]) -> None:
    done = as_stranger(tmp_path, sys.executable, "-c", STRANGER, address, **shown)
    assert done.returncode != 0
    assert "Unauthenticated" in done.stderr, done.stderr[-2000:]
    assert "ran as" not in done.stdout


def test_who_has_the_token_does(address: str, tmp_path: Path) -> None:
    shown = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    quick = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **os.environ, **shown}
    done = subprocess.run([sys.executable, "-c", STRANGER, address], capture_output=True, text=True, env=quick)
    assert f"ran as {os.getuid()}" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_a_node_without_the_token_does_not_join(address: str, tmp_path: Path) -> None:
    before = ray.cluster_resources()  # type: ignore[no-untyped-call]
    ray_command = str(Path(sys.executable).with_name("ray"))
    done = as_stranger(
        tmp_path,
        ray_command,
        "start",
        "--address",
        address,
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1",
    )
    assert done.returncode != 0, done.stdout
    assert ray.cluster_resources() == before  # type: ignore[no-untyped-call]


def listening(pids: set[int]) -> Iterator[str]:
    """The local addresses of all TCP sockets on which these processes listen, as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                inodes.add(os.readlink(handle).removeprefix("socket:[").removesuffix("]"))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                yield fields[1].rpartition(":")[0]


def children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = {int(each) for task in tasks for each in (task / "children").read_text().split()}
    return found.union(*(children(each) for each in found))


def test_it_listens_on_loopback_alone_and_writes_its_token_nowhere(address: str) -> None:
    ray.get(ray.remote(lambda: os.getpid()).options(num_cpus=0).remote())  # a worker is there
    pids = {os.getpid(), *children(os.getpid())}
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    found = set(listening(pids))
    assert found
    assert found <= loopback
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    for pid in pids:
        assert token not in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    session = Path(import_module("ray._private.worker").global_worker.node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert token.encode() not in path.read_bytes(), path


def test_a_ray_that_knows_no_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ray._raylet.AuthenticationTokenLoader")
    with pytest.raises(hr.ConfigError, match=r"ray 2\.\S+: has no token authentication.*: install ray 2.52 or later"):
        trainer_of(hr.Ray())


def test_a_refused_token_is_a_sentence(address: str, tmp_path: Path) -> None:
    done = as_stranger(tmp_path, sys.executable, "-c", CONNECT, address)
    assert f"engine.address='{address}': this Ray requires a token" in done.stdout, done.stderr[-2000:]


def test_a_run_does_not_take_the_private_ray_of_another_for_auto(address: str) -> None:
    assert address in set(_private_addresses())


@pytest.mark.parametrize(
    ("mode", "where", "warned"),
    [("disabled", "192.0.2.7:6379", 1), ("disabled", "127.0.0.1:6379", 1), ("token", "192.0.2.7:6379", 0)],
)
def test_a_ray_that_requires_no_token_is_warned_of(
    mode: str, where: str, warned: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = getattr(import_module("ray._raylet").AuthenticationMode, mode.upper())
    monkeypatch.setattr("ray._raylet.get_authentication_mode", lambda: found)  # the real one is of the Ray in use
    warn_if_open(where)
    assert len(caplog.messages) == warned
    if warned:
        assert f"{where} requires no token: any process that reaches it can run code" in caplog.text


TWICE = """
import os
import ray
from hotrow.runtime.ray.own import own_ray
tokens = []
for _ in range(2):
    with own_ray(1, log_to_driver=False):
        tokens.append(os.environ["RAY_AUTH_TOKEN"])
        assert ray.get(ray.remote(lambda: os.environ["RAY_AUTH_TOKEN"]).remote()) == tokens[-1]
    assert os.environ["RAY_AUTH_TOKEN"] == "mine", os.environ["RAY_AUTH_TOKEN"]
    assert ray._raylet.AuthenticationTokenLoader.instance().get_raw_token(ignore_auth_mode=True) == "mine"
    assert "RAY_AUTH_MODE" not in os.environ and "RAY_worker_niceness" not in os.environ
assert len({*tokens, "mine"}) == 3
print("kept:", os.listdir(f"{os.environ['RAY_TMPDIR']}/hotrow-ray-{os.geteuid()}"))
"""


@pytest.mark.slow
def test_every_run_has_its_own_token_and_the_users_is_restored() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with TemporaryDirectory(dir="/tmp") as folder:  # a short path: Ray has sockets there
        environment = kept | {"RAY_AUTH_TOKEN": "mine", "RAY_TMPDIR": folder}
        command = [sys.executable, "-c", TWICE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert "kept: ['lock']" in done.stdout, done.stderr[-3000:]
