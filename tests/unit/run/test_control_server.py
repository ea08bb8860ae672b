"""The control server of a run: an operator with the key lets roles join and leave, and hears what the run says."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("zmq")
pytest.importorskip("msgspec")

from hotrow.errors import ConfigError, InputError
from hotrow.run import control_server
from hotrow.run.cluster_file import Known
from hotrow.run.control_server import ControlServer, let_join, let_leave
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.trainer.scaling import JoiningKind, RoleScaling
from hotrow.transport.client import RpcClient
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.messages import Clear, Query, QueryReply
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer

KEY = ClusterKey(bytes(range(32)))


class Noted(RoleScaling):
    """Members that a test answers for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.leaving: dict[str, Future[None]] = {}
        self.starting = threading.Event()
        self.starting.set()
        self.at_once = False  # who leaves has left

    def join(self, kind: JoiningKind) -> str:
        self.starting.wait(20)
        self.asked.append(kind)
        if len(self.asked) > 2:
            raise ConfigError("trainers=3: there is no room")
        return f"{kind} {len(self.asked)}"

    def leave(self, name: str) -> "Future[None]":
        if name == "shard 0":
            raise InputError("'shard 0': shards hold rows, and stay")
        self.leaving[name] = Future()
        if self.at_once:
            self.leaving[name].set_result(None)
        return self.leaving[name]


@contextmanager
def opened(members: Noted) -> Iterator[tuple[ControlServer, Known]]:
    made = ControlServer(members, RpcServer(security="key", key=KEY, name="run"))
    try:
        yield made, Known(Path("runs/demo"), 1, "here", ClusterFacts("key", KEY, {}), made.address)
    finally:
        made.close()


def test_who_joins_is_named_and_a_refusal_is_told_as_it_was_said() -> None:
    with opened(Noted()) as (_, known):
        assert let_join(known, "trainer") == "trainer 1"
        assert let_join(known, "embedding worker") == "embedding worker 2"
        with pytest.raises(RemoteFault, match="run: trainers=3: there is no room"):
            let_join(known, "trainer")
        with pytest.raises(RemoteFault, match="run: 'shard 0': shards hold rows, and stay"):
            let_leave(known, "shard 0")


@pytest.mark.parametrize("fault", [None, InputError("'trainer 1': is the last trainer")])
def test_who_lets_a_role_leave_hears_when_it_has(fault: InputError | None) -> None:
    members, told = Noted(), []

    def ask(known: Known) -> None:
        try:
            let_leave(known, "trainer 1")
        except RemoteFault as refusal:
            told.append(refusal.sentence)
        else:
            told.append("left")

    with opened(members) as (_, known):
        asking = threading.Thread(target=ask, args=(known,))
        asking.start()
        while "trainer 1" not in members.leaving:
            threading.Event().wait(0.005)
        assert not told
        if fault is None:
            members.leaving["trainer 1"].set_result(None)
        else:
            members.leaving["trainer 1"].set_exception(fault)
        asking.join(20)
    assert told == ["left" if fault is None else str(fault)]


def test_a_role_that_starts_for_long_keeps_nobody_from_hearing_that_the_run_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_server, "SILENT_S", 1.5)
    members = Noted()
    members.starting.clear()
    threading.Timer(3.0, members.starting.set).start()
    with opened(members) as (_, known):
        assert let_join(known, "trainer") == "trainer 1"


def test_when_the_run_ends_whoever_waits_is_told() -> None:
    members, told = Noted(), []

    def ask(known: Known) -> None:
        with pytest.raises(RemoteFault) as refusal:
            let_leave(known, "trainer 1")
        told.append(refusal.value.sentence)

    with opened(members) as (_, known):
        asking = threading.Thread(target=ask, args=(known,))
        asking.start()
        while "trainer 1" not in members.leaving:
            threading.Event().wait(0.005)
    asking.join(20)
    assert told == ["the run has ended"]
    members.leaving["trainer 1"].set_result(None)  # too late, and no harm


def test_without_the_key_nobody_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "SILENT_S", 0.6)
    members = Noted()
    with opened(members) as (made, known):
        stranger = Known(known.folder, 1, "here", ClusterFacts("key", ClusterKey.generate(), {}), made.address)
        with pytest.raises(PeerLost, match=r"run at .*: nothing was heard"):
            let_join(stranger, "trainer")
    assert members.asked == []


def test_a_run_that_says_nowhere_where_it_listens_is_told() -> None:
    with pytest.raises(InputError, match=r"runs/demo: cluster\.json has no address of the run"):
        let_join(Known(Path("runs/demo"), 1, "here", ClusterFacts("off", None, {})), "trainer")


def test_it_is_asked_for_nothing_else() -> None:
    with opened(Noted()) as (made, _), RpcClient(security="key", key=KEY) as wire:
        wire.connect("run", made.address)
        assert wire.request("run", Query("status")).result(20).message == QueryReply("run", {})
        with pytest.raises(RemoteFault, match="a run does not answer Clear"):
            wire.request("run", Clear("default")).result(20)
