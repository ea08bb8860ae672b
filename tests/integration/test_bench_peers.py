"""`hotrow bench --peer`: the adapters of the sources load without their systems, and a file that is none is refused."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow.bench.peers import Adapter, Part, lines_of, load_adapters
from hotrow.errors import ConfigError

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
TWIN = Path(__file__).with_name("twin_peer.py")


@pytest.mark.parametrize(
    ("name", "part", "module", "lack"),
    [
        ("fbgemm_peer", "store", "fbgemm_gpu", "FBGEMM is not installed: pip install 'hotrow[bench]'"),
        ("torchrec_peer", "training", "torchrec", "TorchRec is not installed: `make bench` installs it"),
        ("torchrec_peer", "cluster", "torchrec", "TorchRec is not installed: `make bench` installs it"),
    ],
)
def test_a_peer_whose_system_is_missing_is_refused_with_its_remedy(
    name: str, part: Part, module: str, lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{name}.find_spec", lambda wanted: None if wanted == module else object())
    with pytest.raises(ConfigError, match=re.escape(lack)):
        load_adapters([PEERS / f"{name}.py"], part)


def test_a_peer_is_refused_where_it_takes_no_part() -> None:
    with pytest.raises(ConfigError, match=r"fbgemm_peer\.py: FBGEMM has no adapter for this benchmark: leave it out"):
        load_adapters([PEERS / "fbgemm_peer.py"], "cluster")


@pytest.mark.parametrize("name", ["torch", "copy", "my_table", "Table", ""])
def test_a_name_that_would_mix_up_figures_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / f"peer_{name or 'of_no_name'}.py"
    file.write_text(TWIN.read_text().replace('name="twin"', f"name={name!r}"))
    with pytest.raises(ConfigError, match=f"--peer .*: its name {name!r} .*give it another"):
        load_adapters([file], "store")


def test_a_peer_is_refused_the_second_time() -> None:
    with pytest.raises(ConfigError, match="a peer named 'twin' runs already"):
        load_adapters([TWIN, TWIN], "store")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent_peer.py", None, "there is no such file"),
        ("empty_peer.py", "", "defines no ADAPTER"),
        ("json.py", "", "there is a module 'json' already: rename the file"),
        ("zipfile.py", "", "there is a module 'zipfile' already: rename the file"),
        ("two words.py", "", "a module cannot be named 'two words'"),
        ("torn_peer.py", "import", "SyntaxError"),
        ("lacking_peer.py", "import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_file_that_is_no_adapter_is_refused(
    name: str, text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"--peer .*{name}: .*{said}"):
        load_adapters([tmp_path / name], "store")


def test_the_command_refuses_a_peer_in_a_sentence() -> None:
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    done = subprocess.run([hotrow, "bench", "train", "--peer", "nowhere.py"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--peer nowhere.py: there is no such file" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_a_line_of_a_report_stands_once_for_each_peer() -> None:
    one, two = (Adapter(name=name, title=name.title(), versions={}, lack=lambda: None) for name in ("one", "two"))
    lines = (("ours", "ours", "x"), ("vs_{name}", "times {title}", "x"))
    expected = [("ours", "ours", "x"), ("vs_one", "times One", "x"), ("vs_two", "times Two", "x")]
    assert lines_of(lines, (one, two)) == expected
    assert lines_of(lines, ()) == expected[:1]
