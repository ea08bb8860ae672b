"""What the system refuses is a sentence with the file in it and exit code 2, wherever it comes from."""

import errno
import os
from pathlib import Path

import pytest

from hotrow.cli import data, new
from small_run import write_data
from unit.cli.conftest import Command

CODES = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EIO, errno.EMFILE)


@pytest.mark.parametrize("code", CODES, ids=[errno.errorcode[code] for code in CODES])
def test_an_error_of_the_system_is_one_sentence(
    code: int, hotrow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code), str(tmp_path / "some file"))

    monkeypatch.setattr(data, "load_config", refused)
    done = hotrow("data", "describe", write_data(tmp_path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hotrow: {tmp_path / 'some file'}: {os.strerror(code)}")
    assert done.stderr.count("\n") == 1
    assert ("are free: make room" in done.stderr) is (code == errno.ENOSPC)


def test_with_debug_it_stays_a_traceback(hotrow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(new, "write_starter", refused)
    assert isinstance(hotrow("--debug", "new", "x").exception, PermissionError)


def test_a_reader_that_went_is_no_fault_of_a_file(hotrow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "gone")

    monkeypatch.setattr(new, "write_starter", refused)
    done = hotrow("new", "x")
    assert done.exit_code == 1
    assert "hotrow:" not in done.stderr


def test_a_config_that_is_no_file(hotrow: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "x.toml", "x" * 300 + ".toml"):
        done = hotrow("train", path)
        assert done.exit_code == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert done.exception is None or isinstance(done.exception, SystemExit)
