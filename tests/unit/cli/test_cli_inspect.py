"""`hotrow inspect`: what is in a checkpoint, found by the name of its folder, of one checkpoint, or of its run."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from hotrow.cli.inspect import parse_row
from hotrow.errors import ConfigError
from small_run import ITEMS, USERS
from unit.checkpoint.test_saved_chain import save
from unit.cli.conftest import Command


def test_a_run_is_shown_with_its_chain_its_tables_and_its_tensors(
    hotrow: Command, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.parents[1])
    done = hotrow("inspect", finished.name, "--json", "found.json", "--picture", "found.svg")
    assert done.exit_code == 0, done.stderr
    found = json.loads(Path("found.json").read_text())
    Path("found.json").unlink()
    assert found["tables"]["default"]["rows"] == USERS + ITEMS
    assert [link["kind"] for link in found["chain"]] == ["full"]
    for shown in ("000001", "adagrad", "norm of the value", "most updated rows of default", "model.first_order.bias"):
        assert shown in done.stdout
    picture = ElementTree.fromstring(Path("found.svg").read_text())
    Path("found.svg").unlink()
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 2


def test_the_folder_of_all_and_of_one_checkpoint_and_a_number_are_names(hotrow: Command, tmp_path: Path) -> None:
    base = save(tmp_path / "c", {1: 1.0}, set(), 1, None)
    save(tmp_path / "c", {2: 2.0}, {1}, 1, base)
    for given, numbers in ((("c",), [1, 2]), (("c/000001",), [1]), (("c", "--number", 1), [1])):
        assert hotrow("inspect", *given, "--row", "t:2" if 2 in numbers else "t:1").exit_code == 0


def test_a_delta_shows_what_changed_and_what_was_removed(
    hotrow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.checkpoint.inspecting.tensors_of", lambda _: [])  # these files have no tensors
    base = save(tmp_path / "c", {1: 1.0, 2: 1.0, 3: 1.0}, set(), 3, None)
    save(tmp_path / "c", {2: 2.0}, {1}, 2, base)
    done = hotrow("inspect", "c", "--json", "found.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(Path("found.json").read_text())
    links = [(each["number"], each["kind"], each["rows"], each["removed"]) for each in found["chain"]]
    assert links == [(1, "full", 3, 0), (2, "delta", 1, 1)]
    assert found["tables"]["t"]["rows"] == sum(found["tables"]["t"]["shards"]) == 2


def test_one_row_is_shown_with_all_its_fields(hotrow: Command, tmp_path: Path) -> None:
    save(tmp_path / "c", {2**64 - 2: 2.5}, set(), 1, None)
    for key in ("-2", "18446744073709551614", "0xfffffffffffffffe"):
        done = hotrow("inspect", "c", "--row", f"t:{key}", "--json", "row.json")
        assert done.exit_code == 0, done.stderr
        row = {"table": "t", "key": 2**64 - 2, "signed_key": -2, "version": 1, "value": [2.5, 2.5], "state": [2.5]}
        assert json.loads(Path("row.json").read_text()) == row
    assert "value: 2.5 2.5" in done.stdout


def test_a_table_s_name_may_hold_a_colon() -> None:
    assert parse_row("a:b:-0x1") == ("a:b", -1)
    for wrong in ("5", "t:", "t:x", f"t:{2**64}", f"t:{-(2**63) - 1}"):
        with pytest.raises(ConfigError, match="write TABLE:KEY"):
            parse_row(wrong)


def test_faults_are_sentences(hotrow: Command, tmp_path: Path) -> None:
    save(tmp_path / "c", {1: 1.0}, set(), 1, None)
    faults = {
        ("nowhere",): "checkpoint nowhere: there is none in it",
        ("c", "--number", 7): "there is no number 7 in it",
        ("c", "--row", "t:9"): "--row t:9: table 't' of checkpoint c has no row with this key",
        ("c", "--row", "u:1"): "there is no table 'u': it has 't'",
        ("c", "--row", "t:1", "--picture", "p.svg"): "--picture and --row: a picture is of all rows",
        ("c", "--json", "no/f.json"): "--json no/f.json: the folder no does not exist",
        ("odd://b/c",): "odd://b/c: cannot be used",
    }
    for given, sentence in faults.items():
        done = hotrow("inspect", *given)
        assert done.exit_code == 2, given
        assert sentence in done.stderr, done.stderr


def test_checkpoints_are_inspected_and_rewritten_without_torch(finished: Path, tmp_path: Path) -> None:
    program = """
import sys
from typer.testing import CliRunner
from hotrow.cli import app
for given in (["inspect"], ["checkpoint", "verify"], ["checkpoint", "compact", "--to", sys.argv[2]]):
    assert CliRunner().invoke(app, [*given, sys.argv[1]]).exit_code == 0, given
print("torch" in sys.modules)
"""
    given = [sys.executable, "-c", program, str(finished), str(tmp_path / "to")]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False"], done.stderr
