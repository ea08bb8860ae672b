"""`hotrow doctor` tells what a machine has in a table, in lines or in a file, and fails only where nothing runs."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hotrow import _native
from hotrow.cli import doctor
from hotrow.cli.screen import Screen
from hotrow.doctor import Finding, Level, read
from unit.cli.conftest import Command


def test_this_machine_is_told_in_lines_and_in_a_file(hotrow: Command) -> None:
    done = hotrow("doctor", "--json", "found.json")
    assert done.exit_code == 0, done.output
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}
    told = json.loads(Path("found.json").read_text())
    assert told["usable"] is True
    assert [each["part"] for each in told["findings"]] == [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert lines["torch"][0] == "ok"
    assert _native.isa() in lines["processor"][1]
    assert {"huge pages", "shared memory", "open files", "locked memory", "ray", "GPU", "memory"} <= set(lines)


def test_a_fault_is_exit_code_2_and_the_file_is_written(hotrow: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(read(), import_errors={"torch": "OSError: libtorch.so\x1b[31m: no such file"})
    monkeypatch.setattr(doctor, "read", lambda: broken)
    done = hotrow("doctor", "--json", "found.json")
    assert done.exit_code == 2
    assert "torch\tfault\t" in done.stdout
    assert "\x1b" not in done.stdout
    assert json.loads(Path("found.json").read_text())["usable"] is False


def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(hotrow: Command) -> None:
    done = hotrow("doctor", "--json", "missing/found.json")
    assert done.exit_code == 2
    assert done.stderr.startswith("hotrow: --json missing/found.json: ")
    assert done.stdout == ""


def test_a_table_on_a_terminal_has_the_remedy_below() -> None:
    screen = Screen(file=io.StringIO(), force_terminal=True, width=100)
    screen.print(doctor.as_table([Finding("huge pages", Level.SLOW, "never", "4 KB pages", "echo madvise")]))
    assert isinstance(screen.file, io.StringIO)
    assert "to mend: echo madvise" in screen.file.getvalue()


def test_readings_survive_a_native_module_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hotrow._native", None)  # as an import that fails
    found = read()
    assert found.isa is None
    assert "hotrow._native" in found.import_errors
