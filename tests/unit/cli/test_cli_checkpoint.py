"""`hotrow checkpoint`: every fault of a chain is named, with exit code 2; chains become full checkpoints."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hotrow.checkpoint import SavedCheckpoint
from hotrow.checkpoint.folder_lock import alone_in
from hotrow.checkpoint.place import Place
from hotrow.errors import FileError
from unit.checkpoint.test_saved_chain import read, save
from unit.cli.conftest import Command
from unit.trainer.test_saving import fit, trainer


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A chain of three in `c`, of one shard each."""
    folder = tmp_path / "c"
    base = save(folder, {1: 1.0, 2: 1.0}, set(), 2, None, shards=1)
    base = save(folder, {3: 2.0}, {1}, 2, base, shards=1)
    save(folder, {2: 3.0}, set(), 2, base, shards=1)
    return folder


def swap(folder: Path) -> None:
    """000002 saved anew, with other rows: 000003 was not saved on this one."""
    other = folder.parent / "other"
    base = save(other, {1: 1.0}, set(), 1, None, shards=1)
    save(other, {3: 9.0}, set(), 2, base, shards=1)
    shutil.rmtree(folder / "000002")
    shutil.copytree(other / "000002", folder / "000002")


def repeat(folder: Path) -> None:
    shutil.rmtree(folder / "000002")
    shutil.copytree(folder / "000001", folder / "000002")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda c: shutil.rmtree(c / "000002"), "000002 is missing, on which 000003 builds: take a full one"),
    "incomplete": (lambda c: (c / "000002/manifest.json").unlink(), "000002 is incomplete, there is no manifest.json"),
    "repeated": (repeat, "000002 holds the manifest of number 1: files were moved or copied by hand"),
    "swapped": (swap, "000002 is not the one that 000003 was saved on: it was replaced"),
    "cut": (lambda c: (c / "000001/manifest.json").write_text("{"), "000001: manifest.json cannot be read"),
}


@pytest.mark.parametrize(("damage", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_link_that_is_not_what_it_must_be_is_named(
    hotrow: Command, links: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    damage(links)
    for command in (("verify", "c"), ("compact", "c", "--to", "to"), ("reshard", "c", "--shards", 2, "--to", "to")):
        done = hotrow("checkpoint", *command)
        assert done.exit_code == 2
        assert sentence in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert not Path("to").exists()


def test_every_damaged_file_of_a_chain_is_named(hotrow: Command, links: Path) -> None:
    assert hotrow("checkpoint", "verify", "c").stdout.startswith("c: 9 files of 000001, 000002, 000003 as saved")
    (links / "000001/dense.safetensors").unlink()
    removed = links / "000002/tables/0/0-of-1.removed.arrow"
    removed.write_bytes(removed.read_bytes() + b"x")
    rows = links / "000003/tables/0/0-of-1.arrow"
    rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    done = hotrow("checkpoint", "verify", "c", "--json", "found.json")
    assert done.exit_code == 2
    sentences = (
        "000001: dense.safetensors is missing",
        "000002: .*removed.arrow has",
        "000003: .*arrow was changed since",
    )
    for line, sentence in zip(done.stderr.splitlines(), sentences, strict=True):
        assert re.search(sentence, line), line
    assert len(json.loads(Path("found.json").read_text())["faults"]) == 3
    assert hotrow("checkpoint", "verify", "c", "--number", 1).stderr.count("\n") == 1


def test_a_file_without_a_checksum_is_named(hotrow: Command, tmp_path: Path) -> None:
    save(tmp_path / "c", {1: 1.0}, set(), 1, None, shards=1)
    file = tmp_path / "c/000001/manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["files"]["tables/0/0-of-1.arrow"]
    file.write_text(json.dumps(manifest))
    done = hotrow("checkpoint", "verify", "c")
    assert done.exit_code == 2
    assert "manifest.json names tables/0/0-of-1.arrow for table 't' and has no checksum of it" in done.stderr


def test_a_checkpoint_that_is_being_written_is_no_fault(hotrow: Command, links: Path) -> None:
    shutil.copytree(links / "000003", links / "000004")
    (links / "000004/manifest.json").unlink()
    done = hotrow("checkpoint", "verify", "c")
    assert done.exit_code == 0
    assert "note: 000004 is not finished and is not read" in done.stderr


def test_a_chain_is_compacted_in_place_and_what_is_superfluous_goes(hotrow: Command, links: Path) -> None:
    rows = read(links)
    done = hotrow("checkpoint", "compact", "c", "--keep", 1)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("c/000004: 2 rows of 000001, 000002, 000003, ")
    assert [path.name for path in links.iterdir()] == ["000004"]
    assert read(links) == rows
    assert "c/000004: is a full checkpoint already" in hotrow("checkpoint", "compact", "c").stdout


def test_a_chain_is_resharded_into_another_folder(hotrow: Command, links: Path) -> None:
    done = hotrow("checkpoint", "reshard", "c", "--shards", 3, "--to", "to")
    assert done.exit_code == 0, done.stderr
    assert read(Path("to")) == read(links)
    assert len(list(Path("to/000001/tables/0").iterdir())) == 3
    assert hotrow("checkpoint", "reshard", "c", "--shards", 0).exit_code == 2
    assert "000002 is not the newest" in hotrow("checkpoint", "compact", "c", "--number", 2).stderr


def test_a_folder_that_a_trainer_saves_into_is_not_rewritten_in_place(hotrow: Command, tmp_path: Path) -> None:
    made = trainer()
    for turn in range(2):
        fit(made, 1, seed=turn)
        made.save(tmp_path / "c", keep=9, delta=True)
    for command in (["compact", "c"], ["reshard", "c", "--shards", "2"]):
        refused = hotrow("checkpoint", *command)
        assert refused.exit_code == 2
        assert "checkpoint c: a run that is not closed saves into it" in refused.stderr
        assert "name another folder with --to" in refused.stderr
    assert hotrow("checkpoint", "compact", "c", "--to", "other").exit_code == 0
    made.save(tmp_path / "c", keep=9, delta=True)
    assert SavedCheckpoint.open(tmp_path / "c").manifest.kind == "delta"  # nothing came between
    made.close()
    assert hotrow("checkpoint", "compact", "c").exit_code == 0


def test_a_save_into_a_folder_that_is_being_rewritten_is_refused(tmp_path: Path) -> None:
    made = trainer()
    fit(made, 1)
    made.save(tmp_path / "c")
    made.save(tmp_path / "other")  # the first folder is free again
    with alone_in(Place.of(tmp_path / "c")):
        with pytest.raises(FileError, match="another process compacts or reshards it: save again later"):
            made.save(tmp_path / "c")
        made.save(tmp_path / "other")
    made.save(tmp_path / "c")
    made.close()
