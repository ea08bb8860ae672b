"""`hotrow cluster`: a line for each role, who does not answer, who joins and leaves, a sentence where no run is."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("zmq")
pytest.importorskip("msgspec")

from hotrow.cli.cluster import as_table
from hotrow.errors import InputError
from hotrow.run import load_config
from hotrow.run.cluster_file import ClusterFile
from hotrow.run.cluster_status import RoleState
from hotrow.run.starting import starting_cluster
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId
from small_run import write_data
from unit.cli.conftest import Command
from unit.run.test_control_server import Noted, opened

NOBODY = RoleAddress("tcp://127.0.0.1:9", "here", 4711)  # a port where nobody listens


def test_no_run_is_a_sentence_that_says_where_it_looked(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("cluster", "status")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"there is no cluster.json in the folders of {tmp_path / 'runs'}" in done.stderr
    assert "no cluster.json in mine nor in runs/mine" in hotrow("cluster", "status", "mine").stderr


def test_who_does_not_answer_is_shown_as_such(hotrow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotrow.run.cluster_status.look.__kwdefaults__", {"wait_s": 0.2})
    Path("runs/demo").mkdir(parents=True)
    key = ClusterKey.generate()
    ClusterFile(Path("runs/demo")).write(ClusterFacts("key", key, {RoleId("shard", 0): NOBODY}), None)
    done = hotrow("cluster", "status", "demo", "--json", "status.json")
    assert done.exit_code == 0, done.stderr
    header, row = done.stdout.splitlines()
    assert header.split() == ["role", "address", "done", "per", "s", "busy", "in", "out", "parked", "waiting"]
    assert row.split() == ["shard", "0", "127.0.0.1:9", "no", "answer"]
    assert "shard 0 (process 4711 on here): no answer within 0.2 s" in done.stderr
    document = json.loads(Path("status.json").read_text())
    assert (document["answering"], document["pid"], document["run"]) == (0, os.getpid(), "runs/demo")
    assert document["roles"]["shard 0"]["trouble"] == "no answer within 0.2 s"
    assert key.secret.hex() not in Path("status.json").read_text()


@pytest.mark.parametrize("resumed", [False, True])
def test_the_key_of_a_killed_run_is_removed_unless_it_was_resumed_meanwhile(
    hotrow: Command, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    folder = Path("runs/demo")
    folder.mkdir(parents=True)
    facts = ClusterFacts("key", ClusterKey.generate(), {RoleId("shard", 0): NOBODY})
    ClusterFile(folder).write(facts, None)
    document = json.loads((folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps(document | {"pid": 2**22 + 1}))

    def resume(_: ClusterFacts, over_s: float) -> list[RoleState]:
        if resumed:
            ClusterFile(folder).write(facts, None)
        return []

    monkeypatch.setattr("hotrow.cli.cluster.look", resume)  # the seconds that the questions take
    done = hotrow("cluster", "status", "demo")
    assert done.exit_code == 0, done.stderr
    assert ("cluster.json and cluster.key are removed" in done.stderr) is not resumed
    assert (folder / "cluster.key").exists() is resumed


def test_a_cluster_that_is_starting_is_told_as_such(hotrow: Command) -> None:
    folder = Path("runs/demo")
    folder.mkdir(parents=True)
    announced = ClusterFile(folder)
    announced.announce()
    done = hotrow("cluster", "status", "--json", "status.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(f"run runs/demo: the cluster is starting (process {os.getpid()} on ")
    assert json.loads(Path("status.json").read_text())["starting"] is True
    assert "runs/demo: the cluster is starting: try again" in hotrow("cluster", "join", "trainer").stderr
    announced.remove()
    assert "there is no cluster.json" in hotrow("cluster", "status").stderr


def test_a_cluster_that_does_not_start_leaves_no_folder(hotrow: Command, tmp_path: Path) -> None:
    config = load_config(write_data(tmp_path), engine={"name": "ray"})
    for resumed in (False, True):
        folder = Path("runs/small")
        if resumed:
            folder.mkdir(parents=True)

        def fail(to_start: AbstractContextManager[Path | None]) -> None:
            with to_start as place:
                assert place == Path("runs/small")
                assert "the cluster is starting" in hotrow("cluster", "status").stdout
                raise InputError("no room")

        with pytest.raises(InputError, match="no room"):
            fail(starting_cluster(config, folder, resumed=resumed))
        assert folder.exists() is resumed
        assert Path("runs").exists() is resumed
        assert not (folder / "cluster.json").exists()


def test_figures_of_a_large_cluster_fit_a_terminal() -> None:
    place = RoleAddress("tcp://10.128.14.3:39415", "node-3", 123456)
    shard = RoleState("shard 12", place, "", None, 4.56e8, 1234.0, "requests", None, 1.23e12, 9.87e11, 1024.0, 12.0)
    trainer = RoleState("trainer 31", place, "", 1.2e6, None, 123_456.0, "samples", 0.634, 1e9, 2e9)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(as_table([shard, trainer]))
    _, first, second = captured.get().splitlines()
    assert " ".join(first.split()) == "shard 12 10.128.14.3:39415 456 M rows 1.23 k - 1.2 TB 987.0 GB 1,024 12"
    assert " ".join(second.split()) == "trainer 31 10.128.14.3:39415 1.2 M batches 123 k 63% 1.0 GB 2.0 GB - -"


def test_what_cannot_join_or_leave_is_a_sentence(hotrow: Command) -> None:
    assert "there is no cluster.json" in hotrow("cluster", "leave", "trainer 1").stderr
    Path("runs/demo").mkdir(parents=True)
    ClusterFile(Path("runs/demo")).write(ClusterFacts("off", None, {RoleId("shard", 0): NOBODY}), None)
    done = hotrow("cluster", "join", "shard", "demo")
    assert done.exit_code == 2
    assert "kind='shard': must be 'trainer' or 'embedding worker'; shards hold rows, and stay" in done.stderr
    for words in (("join", "trainer"), ("leave", "trainer 1")):
        done = hotrow("cluster", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "runs/demo: cluster.json has no address of the run" in done.stderr


def test_an_operator_lets_roles_join_and_leave(hotrow: Command) -> None:
    Path("runs/demo").mkdir(parents=True)
    members = Noted()
    with opened(members) as (control_server, known):
        ClusterFile(Path("runs/demo")).write(known.facts, None, control_server.address)
        done = hotrow("cluster", "join", "embedding worker", "demo")
        assert (done.exit_code, done.stdout) == (0, "embedding worker 1 joins runs/demo\n")
        members.at_once = True
        done = hotrow("cluster", "leave", "embedding worker 0")
        assert (done.exit_code, done.stdout) == (0, "embedding worker 0 has left runs/demo\n")
