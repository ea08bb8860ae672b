"""Files of figures: told early where they cannot be written, and always JSON."""

import json
import math
from pathlib import Path

import pytest

from hotrow.cli.files import check_writable, write_json
from hotrow.errors import ConfigError


def test_numbers_that_json_does_not_have_are_null_at_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": math.nan, "b": [1, -math.inf, {"c": math.inf}], "d": "é", "e": None, "f": (True, 0.5)})
    expected = {"a": None, "b": [1, None, {"c": None}], "d": "é", "e": None, "f": [True, 0.5]}
    assert json.loads(path.read_text(encoding="utf-8")) == expected
    write_json(None, {"nobody": "asked"})


def test_a_file_without_a_folder_and_a_folder_are_refused(tmp_path: Path) -> None:
    check_writable("--json", None)
    check_writable("--json", tmp_path / "a.json")
    with pytest.raises(ConfigError, match=r"--json .*no/a\.json: the folder .*no does not exist, make it first"):
        check_writable("--json", tmp_path / "no" / "a.json")
    with pytest.raises(ConfigError, match=r"--json .*: is a folder, name a file in it"):
        check_writable("--json", tmp_path)
