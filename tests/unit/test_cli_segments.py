"""`hotrow segments`: a table to read, a file to keep, and nothing removed that was not named."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow import _native
from hotrow.cli import app
from hotrow.cli.segments import age_text
from hotrow.sizes import size_text


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["segments", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One segment that is kept, one whose process died, one that is damaged."""
    for name in ("hotrow-r1-kept.rows", "hotrow-r1-dead.rows"):
        path = tmp_path / name
        segment = _native.Segment(str(path), [("run", "r1"), ("dim", "16")], huge=False, keep=True)
        dead = path.read_bytes()
        segment.close()
        if "dead" in name:
            path.write_bytes(dead)
    (tmp_path / "hotrow-r2-bad.rows").write_bytes(b"x" * 5000)
    (tmp_path / "hotrow-r2-bad.rows").chmod(0o600)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_list_shows_name_run_table_size_state_and_age(folder: Path) -> None:
    code, out, err = run("--directory", str(folder))
    assert (code, err) == (0, "")
    header, *lines = out.splitlines()
    assert header.split() == ["name", "run", "table", "size", "state", "age"]
    assert lines[0].split()[:-2] == ["hotrow-r1-dead.rows", "r1", "dead", "2.1", "MB", "left", "behind"]
    assert lines[1].split()[:-2] == ["hotrow-r1-kept.rows", "r1", "kept", "2.1", "MB", "kept"]
    assert lines[2].split()[:-2] == ["hotrow-r2-bad.rows", "r2", "bad", "5.0", "kB", "damaged"]
    assert "is not a segment of Hotrow" in lines[3]


@pytest.mark.parametrize("arguments", [("--help",), ("remove", "--help")])
def test_help_names_the_options(arguments: tuple[str, ...]) -> None:
    code, out, _ = run(*arguments)
    assert code == 0
    assert "--directory" in out


def test_an_empty_list_is_a_sentence(tmp_path: Path) -> None:
    assert run("--directory", str(tmp_path)) == (0, f"no segments in {tmp_path}\n", "")
    assert run()[0] == 0


def test_the_list_goes_to_a_file_too(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("out") / "segments.json"
    assert run("--directory", str(folder), "--json", str(path))[0] == 0
    dead, kept, bad = json.loads(path.read_text())
    assert dead["state"] == "left behind"
    assert kept["identity"] == {"run": "r1", "dim": "16"}
    assert kept["bytes"] == 2**21
    assert "not a segment" in bad["damaged"]


def test_trouble_is_one_sentence_and_code_2(folder: Path) -> None:
    place = str(folder)
    for arguments in (
        ("--directory", f"{place}/missing"),
        ("--directory", place, "--json", f"{place}/missing/x.json"),
        ("--directory", place, "remove", "hotrow-r1-kept.rows"),
        ("remove",),
        ("remove", "--left-behind", "hotrow-r1-kept.rows", "--directory", place),
        ("remove", "hotrow-r1-other.rows", "--directory", place),
        ("remove", f"{place}/hotrow-r1-other.rows"),
    ):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("hotrow: ")
    assert len(names(folder)) == 3


def test_segments_are_removed_by_name_or_path(folder: Path) -> None:
    code, out, _ = run("remove", "hotrow-r1-kept.rows", f"{folder}/hotrow-r2-bad.rows", "--directory", str(folder))
    assert code == 0
    assert out.count("removed ") == 2
    assert names(folder) == ["hotrow-r1-dead.rows"]


def test_left_behind_spares_what_is_kept_damaged_or_in_use(folder: Path) -> None:
    held = _native.Segment(str(folder / "hotrow-r3-held.rows"), [], huge=False, keep=False)
    assert run("remove", "--left-behind", "--directory", str(folder))[0] == 0
    assert names(folder) == ["hotrow-r1-kept.rows", "hotrow-r2-bad.rows", "hotrow-r3-held.rows"]
    assert run("remove", "--left-behind", "--directory", str(folder))[1] == "nothing was left behind\n"
    code, _, err = run("remove", "hotrow-r3-held.rows", "--directory", str(folder))
    assert code == 2
    assert "in use by" in err
    held.close()


def test_sizes_and_ages_are_short() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 2**21, 8 * 10**9, 10**12)] == [
        "0 B", "999 B", "1.0 kB", "2.1 MB", "8.0 GB", "1.0 TB",
    ]  # fmt: skip
    assert [age_text(seconds) for seconds in (0, 59, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
