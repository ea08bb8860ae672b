"""cluster.json: what a run writes for those that ask its roles, and that it goes with the run."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hotrow.errors import ConfigError, InputError
from hotrow.run.cluster_file import ClusterFile, find_cluster, read_cluster, remove_left, sweep
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId

KEY = ClusterKey(bytes(range(32)))
ROLES = {
    RoleId("shard", 0): RoleAddress("tcp://127.0.0.1:4000", "here", 12),
    RoleId("trainer", 0): RoleAddress("tcp://10.0.0.2:1", "b", 13),
}
FACTS = ClusterFacts("key", KEY, ROLES)


def test_what_was_written_is_read_again_with_the_key_of_the_run(tmp_path: Path) -> None:
    file = ClusterFile(tmp_path)
    file.write(FACTS, None, "tcp://127.0.0.1:5")
    known = read_cluster(tmp_path)
    assert known.facts == FACTS
    assert known.control_server == "tcp://127.0.0.1:5"
    assert known.pid == os.getpid()
    assert not known.is_gone
    assert stat.S_IMODE((tmp_path / "cluster.key").stat().st_mode) == 0o600
    assert KEY.secret.hex() not in (tmp_path / "cluster.json").read_text()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_the_users_stays_where_it_is(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine.key"
    run.mkdir()
    KEY.write(mine)
    file = ClusterFile(run)
    file.write(FACTS, mine)
    assert read_cluster(run).facts.key == KEY
    assert not (run / "cluster.key").exists()
    file.remove()
    assert mine.exists()


def test_without_security_there_is_no_key(tmp_path: Path) -> None:
    ClusterFile(tmp_path).write(ClusterFacts("off", None, ROLES), None)
    assert read_cluster(tmp_path).facts == ClusterFacts("off", None, ROLES)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_it_is_written_anew_when_roles_come_and_only_then(tmp_path: Path) -> None:
    file = ClusterFile(tmp_path)
    file.write(FACTS, None)
    (tmp_path / "cluster.json").unlink()
    file.write(FACTS, None)
    assert not (tmp_path / "cluster.json").exists()
    more = replace(FACTS, roles={**ROLES, RoleId("trainer", 1): RoleAddress("tcp://127.0.0.1:7", "here", 14)})
    file.write(more, None)
    assert read_cluster(tmp_path).facts.roles == more.roles


def test_what_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    ClusterFile(tmp_path).write(replace(FACTS, key=ClusterKey(bytes(32))), None)
    ClusterFile(tmp_path).write(FACTS, None)
    assert read_cluster(tmp_path).facts.key == KEY


def test_a_run_that_wrote_nothing_removes_nothing(tmp_path: Path) -> None:
    ClusterFile(tmp_path).write(FACTS, None)
    ClusterFile(tmp_path).remove()
    assert (tmp_path / "cluster.json").exists()


def test_a_run_whose_process_has_ended_is_told(tmp_path: Path) -> None:
    ClusterFile(tmp_path).write(FACTS, None)
    document = json.loads((tmp_path / "cluster.json").read_text())
    (tmp_path / "cluster.json").write_text(json.dumps(document | {"pid": 2**22 + 1}))
    assert read_cluster(tmp_path).is_gone
    (tmp_path / "cluster.json").write_text(json.dumps(document | {"pid": 2**22 + 1, "node": "another machine"}))
    assert not read_cluster(tmp_path).is_gone


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"roles": {"shard 0": {"pid": 3}}}', '{"roles": 3}'])
def test_a_damaged_file_is_told_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(InputError, match=r"cluster\.json: cannot be read: .*: a run writes it while it trains"):
        read_cluster(tmp_path)


def test_a_run_is_found_by_folder_by_name_and_else_the_newest(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for age, name in enumerate(("new", "old")):
        (runs / name).mkdir(parents=True)
        ClusterFile(runs / name).write(FACTS, None)
        os.utime(runs / name / "cluster.json", (1e9 - age, 1e9 - age))
    (runs / "over").mkdir()
    assert find_cluster(None, runs) == runs / "new"
    assert find_cluster(Path("old"), runs) == runs / "old"
    assert find_cluster(runs / "old", runs) == runs / "old"
    with pytest.raises(
        ConfigError, match=r"no cluster\.json in over nor in .*over: a run with engine = .ray. writes it"
    ):
        find_cluster(Path("over"), runs)


def test_where_it_looked_is_told_where_nothing_goes_on(tmp_path: Path) -> None:
    for parent in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match=rf"no cluster\.json in the folders of {parent}: name the folder"):
            find_cluster(None, parent)


def left_by(folder: Path, **changed: object) -> Path:
    """What a run has written, with another process in it."""
    folder.mkdir()
    ClusterFile(folder).write(FACTS, None)
    document = json.loads((folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps(document | changed))
    return folder


def test_a_run_that_starts_removes_what_killed_ones_left_and_nothing_else(tmp_path: Path) -> None:
    ended = left_by(tmp_path / "ended", pid=2**22 + 1)
    cut = left_by(tmp_path / "cut", started=1)  # another process has its pid by now
    (cut / "cluster.json").rename(cut / "cluster.json.new")  # killed before it had its name
    others = [
        left_by(tmp_path / "elsewhere", pid=2**22 + 1, node="another host"),
        left_by(tmp_path / "in a container", pid=2**22 + 1, pids="pid:[1]"),
    ]
    alive = tmp_path / "alive"
    alive.mkdir()
    (tmp_path / "a file").touch()
    ClusterFile(alive).write(FACTS, None)
    assert not list(ended.iterdir())
    assert not list(cut.iterdir())
    for folder in (alive, *others):
        assert {path.name for path in folder.iterdir()} == {"cluster.json", "cluster.key"}


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = left_by(tmp_path / "ended", pid=2**22 + 1)
    with monkeypatch.context() as other:
        other.setattr("os.geteuid", lambda: 2**31)
        assert sweep(tmp_path) == []
    assert sweep(tmp_path) == [ended]


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.new"])
def test_a_killed_run_is_resumed_in_its_own_folder(name: str, tmp_path: Path) -> None:
    killed = left_by(tmp_path / "killed", pid=2**22 + 1)
    (killed / "cluster.json").rename(killed / name)
    resumed = replace(FACTS, key=ClusterKey(bytes(32)))
    ClusterFile(killed).write(resumed, None)
    assert read_cluster(killed).facts == resumed
    assert {path.name for path in killed.iterdir()} == {"cluster.json", "cluster.key"}


def test_folders_that_cannot_be_changed_do_not_stop_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = left_by(tmp_path / "archive", pid=2**22 + 1)
    unlink = Path.unlink

    def guarded(path: Path, missing_ok: bool = False) -> None:
        if path.parent == archive:  # the user of the tests may be root, whom modes do not stop
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", guarded)
    ended = left_by(tmp_path / "ended", pid=2**22 + 1)
    (tmp_path / "new").mkdir()
    ClusterFile(tmp_path / "new").write(FACTS, None)
    assert read_cluster(tmp_path / "new").facts == FACTS
    assert (archive / "cluster.key").exists()
    assert not list(ended.iterdir())
    assert sweep(tmp_path / "missing") == []


def test_a_run_that_was_resumed_meanwhile_keeps_its_key(tmp_path: Path) -> None:
    killed = left_by(tmp_path / "killed", pid=2**22 + 1)
    assert read_cluster(killed).is_gone
    ClusterFile(killed).write(FACTS, None)
    assert not remove_left(killed)
    (killed / "cluster.json").rename(killed / "cluster.json.new")  # not renamed yet
    assert not remove_left(killed)
    assert (killed / "cluster.key").exists()


def test_a_key_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ConfigError, match="is there already"):
        KEY.write(tmp_path / "link")
    assert target.read_text() == "kept"
