"""`hotrow keygen`, and a hotrow without the parts of a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow.cli import app
from hotrow.errors import ConfigError
from hotrow.transport import check_installed
from hotrow.transport.security import KEY_FILE, ClusterKey


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    done = CliRunner().invoke(app, ["keygen", str(path)])
    assert done.exit_code == 0
    assert f"export {KEY_FILE}={path}" in done.stdout
    made = ClusterKey.read(path)
    assert made.secret.hex() not in done.stdout
    again = CliRunner().invoke(app, ["keygen", str(path)])
    assert again.exit_code == 2
    assert again.stderr.startswith(f"hotrow: key file {path}: is there already")
    assert ClusterKey.read(path) == made


def test_a_missing_part_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr("hotrow.transport.find_spec", lambda name: None if name == "zmq" else object())
    with pytest.raises(ConfigError, match=r"needs pyzmq: pip install 'hotrow\[ray\]'"):
        check_installed()
    monkeypatch.setattr("hotrow.transport.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs pyzmq and msgspec"):
        check_installed()


def test_hotrow_and_its_command_do_without_them() -> None:
    program = (
        "import sys; sys.modules['zmq'] = sys.modules['msgspec'] = None\n"
        "import hotrow, hotrow.cli, hotrow.transport.security"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
