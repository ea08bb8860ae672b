"""What is told about the machine."""

import json
import os
import platform
from pathlib import Path

import torch

from hotrow.obs import machine as facts


def test_machine_json_has_all_its_keys_and_is_json() -> None:
    told = facts.machine()
    assert list(told) == ["cpu", "cores", "memory_bytes", "python", "torch", "hotrow", "platform"]
    assert json.loads(json.dumps(told)) == told
    assert told["torch"] == torch.__version__
    assert told["python"] == platform.python_version()
    assert told["cores"] == len(os.sched_getaffinity(0))


def test_free_memory_is_a_part_of_all() -> None:
    assert 0 < facts.available_bytes() < facts.memory_bytes()


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert facts.package_version("no-such-package-at-all") is None


def test_fields_are_found_by_their_whole_name(tmp_path: Path) -> None:
    path = tmp_path / "info"
    path.write_text("MemTotal:  12 kB\nmodel name\t: A : B\nmodel name: second\n")
    assert facts.proc_field(path, "model name") == "A : B"
    assert facts.proc_field(path, "MemTotal") == "12 kB"
    assert facts.proc_field(path, "Mem") is None
    assert facts.proc_field(tmp_path / "missing", "MemTotal") is None
