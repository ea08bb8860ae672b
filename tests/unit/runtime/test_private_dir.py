"""Directories of Ray: private, removed with their run, and after it where that was killed."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
from hotrow.errors import ConfigError
from hotrow.runtime.ray.private_dir import base_dir, private_dir

pytestmark = pytest.mark.ray

HOLDER = """
import sys, time
from pathlib import Path
from hotrow.runtime.ray.private_dir import private_dir
with private_dir(Path(sys.argv[1])) as made:
    (made / "session").mkdir()
    (made / "session" / "log").write_text("x")
    print(made, flush=True)
    time.sleep(300)
"""


def test_a_directory_is_private_and_goes_when_it_is_not_used_any_more(tmp_path: Path) -> None:
    with private_dir(tmp_path) as made, private_dir(tmp_path) as other:
        assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
        assert made != other
        assert made.is_dir()
        (made / "file").touch()
    assert not made.exists()


def test_what_a_killed_process_left_goes_at_the_next_start_and_what_a_living_one_uses_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            held = Path(holder.stdout.readline().strip())
            with private_dir(tmp_path):
                assert (held / "session/log").exists()
        finally:
            holder.kill()
    assert (held / "session/log").exists()
    with private_dir(tmp_path):
        assert not held.exists()


def test_a_cleaner_that_removes_old_files_does_not_free_a_directory_in_use(tmp_path: Path) -> None:
    with private_dir(tmp_path) as held:
        (held / "session").mkdir()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                path.unlink()
        with private_dir(tmp_path):
            assert (held / "session").is_dir()


@pytest.mark.parametrize("kind", ["open to others", "link", "of another user"])
def test_a_directory_that_others_can_enter_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"hotrow-ray-{os.geteuid()}"
    if kind == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "target")
    else:
        path.mkdir(mode=0o700)
        path.chmod(0o755 if kind == "open to others" else 0o700)
    if kind == "of another user":
        monkeypatch.setattr("os.geteuid", lambda: 2**31)
        path.rename(tmp_path / f"hotrow-ray-{2**31}")
    with pytest.raises(ConfigError, match=r"with mode 700.*: remove it, or set TMPDIR"), private_dir(tmp_path):
        pass


def test_a_directory_whose_sockets_had_too_long_names_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 60)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("y" * 60)))
    assert base_dir() == Path("/tmp")
    monkeypatch.setenv("RAY_TMPDIR", "/var/tmp")
    assert base_dir() == Path("/var/tmp")
