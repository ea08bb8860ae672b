"""The command line's promises: a version, one sentence for expected trouble, tracebacks only when asked for."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow.bench import pages
from hotrow.cli import app
from hotrow.errors import ConfigError

HUGE = {pages.TUNABLES: pages.HUGE_MALLOC}  # as after the restart, so that a test is not replaced by the command


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env=HUGE).invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_version_is_the_package_s() -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("hotrow 0.")


def test_no_arguments_show_the_commands() -> None:
    _, out, err = run()
    assert "bench" in out + err


def test_expected_trouble_is_one_sentence_and_code_2(tmp_path: Path) -> None:
    code, out, err = run("bench", "store", "--json", str(tmp_path / "missing" / "result.json"))
    assert code == 2
    assert out == ""
    assert err.startswith("hotrow: --json ")
    assert err.count("\n") == 1


def test_debug_keeps_the_traceback(tmp_path: Path) -> None:
    arguments = ["--debug", "bench", "store", "--json", str(tmp_path / "missing" / "result.json")]
    result = CliRunner(env=HUGE).invoke(app, arguments)
    assert isinstance(result.exception, ConfigError)


def test_a_picture_without_its_curve_is_refused() -> None:
    code, _, err = run("bench", "store", "--picture", "curve.svg")
    assert code == 2
    assert "--curve" in err


@pytest.mark.parametrize("option", ["--rows", "--rounds", "--threads", "--dim"])
def test_sizes_below_one_are_refused(option: str) -> None:
    code, _, err = run("bench", "store", option, "0")
    assert code == 2
    assert option in err


def test_quick_bench_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    sizes = ["--rows", "5000", "--rounds", "1", "--threads", "1", "--dim", "4"]
    code, out, err = run("bench", "store", "--quick", *sizes, "--json", str(path))
    assert code == 0, err
    assert "Hotrow, Adagrad step" in out
    assert "growing from empty" in err  # progress stays off standard output
    assert json.loads(path.read_text())["job"]["rows"] == 5000


def test_bench_restarts_itself_once_with_huge_pages_for_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(Exception):
        pass

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert arguments == [path, *sys.orig_argv[1:]]
        assert environment[pages.TUNABLES] == "glibc.malloc.check=0:glibc.malloc.hugetlb=1"
        raise Replaced

    monkeypatch.setattr("os.execve", execve)
    monkeypatch.setenv(pages.TUNABLES, "glibc.malloc.check=0")
    result = CliRunner().invoke(app, ["bench", "store", "--quick"])
    assert isinstance(result.exception, Replaced)
    assert "2 MB pages" in result.stderr
    monkeypatch.setenv(pages.TUNABLES, pages.HUGE_MALLOC)
    assert pages.peers_get_huge_pages()
