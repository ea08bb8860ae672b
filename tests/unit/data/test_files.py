"""Paths, globs, lists and URIs to files."""

from pathlib import Path

import pytest

from hotrow.data.files import File, find_files
from hotrow.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "c.txt", "deep/er/d.csv", "odd[1].csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(files: tuple[File, ...], folder: Path) -> list[str]:
    return [str(Path(file.path).relative_to(folder)) for file in files]


def test_a_path_is_taken_from_the_base_or_as_it_is(folder: Path) -> None:
    assert names(find_files("a.csv", folder), folder) == ["a.csv"]
    assert names(find_files(folder / "a.csv", Path("elsewhere")), folder) == ["a.csv"]
    assert find_files("a.csv", folder)[0].stream().read() == b"a.csv"
    assert find_files("a.csv", folder)[0].file().read() == b"a.csv"


def test_a_relative_path_is_opened_from_any_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process of the host, as a loader, may have another one."""
    monkeypatch.chdir(folder)
    found = [*find_files("a.csv"), *find_files("deep/*/d.csv")]
    monkeypatch.chdir("/")
    assert [file.name for file in found] == ["a.csv", "deep/er/d.csv"]
    assert [file.stream().read() for file in found] == [b"a.csv", b"deep/er/d.csv"]


def test_globs_are_sorted_and_lists_keep_their_order(folder: Path) -> None:
    assert names(find_files("?.csv", folder), folder) == ["a.csv", "b.csv"]
    assert names(find_files(["b.csv", "?.csv"], folder), folder) == ["b.csv", "a.csv", "b.csv"]
    assert names(find_files("**/d.csv", folder), folder) == ["deep/er/d.csv"]
    assert names(find_files("d*", folder / "deep/er"), folder) == ["deep/er/d.csv"]


def test_globs_are_sorted_whatever_the_file_system_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = [str(folder / "b.csv"), str(folder / "a.csv")]
    monkeypatch.setattr("hotrow.data.files.glob", lambda pattern, recursive: backwards)
    assert names(find_files("?.csv", folder), folder) == ["a.csv", "b.csv"]


def test_a_name_that_looks_like_a_glob_but_is_there_is_a_path(folder: Path) -> None:
    assert names(find_files("odd[1].csv", folder), folder) == ["odd[1].csv"]


def test_uris_name_files_and_globs_too(folder: Path) -> None:
    assert names(find_files(f"file://{folder}/a.csv"), folder) == ["a.csv"]
    assert names(find_files(f"file://{folder}/?.csv"), folder) == ["a.csv", "b.csv"]
    assert names(find_files(f"file://{folder}/de*/*/d.csv"), folder) == ["deep/er/d.csv"]
    found = find_files(f"file://{folder}/?.csv")
    assert [file.name for file in found] == [f"file://{folder}/a.csv", f"file://{folder}/b.csv"]
    assert found[1].stream().read() == b"b.csv"


def test_files_that_were_found_already_are_kept(folder: Path) -> None:
    found = find_files("?.csv", folder)
    assert find_files(found) == found
    assert find_files(found[0]) == found[:1]


def test_what_is_not_there_is_told(folder: Path) -> None:
    faults = [
        ("none.csv", f"{folder}/none.csv: there is no such file"),
        ("*.json", "no file has such a name"),
        ("deep", "is a directory: name its files, as '.*deep/\\*'"),
        (f"file://{folder}/none.csv", "none.csv: there is no such file"),
        (f"file://{folder}/*.json", "json: no file has such a name"),
        (f"file://{folder}/deep", "deep: is a directory"),
        (f"file://{folder}/gone/*.csv", "no file has such a name"),
        ("strange://a/b.csv", "strange://a/b.csv: cannot be used"),
    ]
    for where, sentence in faults:
        with pytest.raises(InputError, match=sentence):
            find_files(where, folder)
    with pytest.raises(InputError, match="no file is named"):
        find_files([], folder)


def test_a_file_that_went_away_is_told_when_it_is_opened(folder: Path) -> None:
    (file,) = find_files("a.csv", folder)
    Path(file.path).unlink()
    for opened in (file.stream, file.file):
        with pytest.raises(InputError, match=r"a\.csv: cannot be opened"):
            opened()
