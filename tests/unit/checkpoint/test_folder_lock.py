"""A run holds the folder that it saves into, whatever becomes of the one that had its name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotrow.checkpoint.folder_lock import SharedFolder, alone_in
from hotrow.checkpoint.place import Place
from hotrow.errors import FileError, InputError


@pytest.fixture
def shared() -> Iterator[SharedFolder]:
    folder = SharedFolder()
    yield folder
    folder.release()


def made(path: Path) -> Place:
    path.mkdir()
    return Place.of(path)


def is_free(place: Place) -> bool:
    try:
        with alone_in(place):
            return True
    except InputError:
        return False


def test_a_folder_that_takes_the_place_of_a_held_one_is_held(shared: SharedFolder, tmp_path: Path) -> None:
    place = made(tmp_path / "a")
    shared.hold(place)
    assert not is_free(place)
    (tmp_path / "a").rename(tmp_path / "old")
    made(tmp_path / "a")
    shared.hold(place)
    assert not is_free(place)
    assert is_free(Place.of(tmp_path / "old"))
    (tmp_path / "a").rmdir()
    made(tmp_path / "a")
    shared.hold(place)
    assert not is_free(place)


def test_a_refused_folder_leaves_the_one_before_held(shared: SharedFolder, tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    shared.hold(first)
    with alone_in(second), pytest.raises(FileError, match="another process compacts or reshards it"):
        shared.hold(second)
    assert not is_free(first)
    assert is_free(second)
    shared.hold(second)
    assert is_free(first)
    assert not is_free(second)


def test_a_folder_that_is_not_there_yet_leaves_none_held(shared: SharedFolder, tmp_path: Path) -> None:
    first = made(tmp_path / "a")
    shared.hold(first)
    shared.hold(Place.of(tmp_path / "b"))
    assert is_free(first)
