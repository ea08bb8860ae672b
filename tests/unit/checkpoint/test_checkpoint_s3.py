"""Checkpoints in a bucket of S3, on a server that this test starts: what holds for folders holds there."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from pyarrow import fs
from torch import nn
from typer.testing import CliRunner

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint.manifest import FILE
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint, numbers_in
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.saving import Saved, write_checkpoint
from hotrow.cli import app
from hotrow.store import RamTier
from unit.checkpoint.test_saved_chain import GivenRows, read, save

moto = pytest.importorskip("moto.server", reason="needs moto, which `make install` installs")


@pytest.fixture(scope="module")
def options() -> Iterator[str]:
    """An empty bucket, and what a URI needs to find the server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
    fs.S3FileSystem(access_key="user", secret_key="word", allow_bucket_creation=True, **given).create_dir("models")
    yield "&".join(f"{name}={value}" for name, value in given.items())
    server.stop()


@pytest.fixture(params=["local", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder that does not exist yet."""
    if request.param == "local":
        return str(tmp_path / "c")
    return f"s3://user:word@models/{tmp_path.name}/c?{request.getfixturevalue('options')}"


def folder_in(where: str, name: str) -> str:
    path, mark, options = where.partition("?")
    return f"{path}/{name}{mark}{options}"


def test_a_checkpoint_is_saved_found_verified_and_loaded(where: str) -> None:
    tier = RamTier(hr.Table(dim=3))
    tier.find_or_init(np.arange(1000))
    assert not checkpoint.exists(where)
    assert Place.of(where).folders() == []
    for _ in range(3):
        checkpoint.save(where, nn.Linear(2, 1), None, {"t": tier}, Saved({"step": 1}, None, {}), keep=2)
    assert checkpoint.exists(where)
    assert numbers_in(Place.of(where)) == [2, 3]
    found = SavedCheckpoint.open(where)
    found.verify()
    assert "word" not in found.name
    back = RamTier(hr.Table(dim=3))
    checkpoint.load(where, nn.Linear(2, 1), None, {"t": back})
    assert len(back) == 1000
    assert SavedCheckpoint.open(folder_in(where, "000002")).manifest.number == 2


def test_a_chain_is_read_verified_compacted_and_removed(where: str) -> None:
    base = save(where, {1: 1.0, 2: 1.0}, set(), 2, None)
    save(where, {3: 2.0}, {1}, 2, base)
    rows = read(where)
    assert rows == {2: 1.0, 3: 2.0}
    run = CliRunner().invoke(app, ["checkpoint", "compact", where, "--keep", "1"])
    assert run.exit_code == 0, run.stderr
    assert numbers_in(Place.of(where)) == [3]
    assert read(where) == rows
    apart = folder_in(where, "to")
    assert CliRunner().invoke(app, ["checkpoint", "reshard", where, "--shards", "4", "--to", apart]).exit_code == 0
    assert read(apart) == rows
    assert CliRunner().invoke(app, ["inspect", where, "--row", "t:3"]).exit_code == 0
    place = Place.of(where).folder("000003")
    place.delete(FILE)
    assert not checkpoint.exists(where)
    assert place.files() == {}


def test_a_damaged_file_is_named_without_the_password(where: str) -> None:
    save(where, {1: 1.0}, set(), 1, None, shards=1)
    place = Place.of(where).folder("000001")
    with place.write("tables/0/0-of-1.arrow") as sink:
        sink.write(b"cut")
    run = CliRunner().invoke(app, ["checkpoint", "verify", where])
    assert run.exit_code == 2
    assert "000001: tables/0/0-of-1.arrow has 3 bytes and was saved with" in run.stderr
    assert "word" not in run.stderr


class FailingRows(GivenRows):
    """Writes a file, then fails."""

    def write(self, place: Place, watch: Watch) -> NoReturn:
        with place.write("tables/0/0-of-1.arrow") as sink:
            sink.write(b"rows")
        raise OSError("the line is cut")


def test_a_save_that_fails_leaves_the_checkpoint_before_and_nothing_of_its_own(where: str) -> None:
    save(where, {1: 1.0}, set(), 1, None)
    with pytest.raises(hr.HotrowError, match=r"the checkpoint .* cannot be written: the line is cut"):
        write_checkpoint(where, None, FailingRows({}, set(), 0, 1), Saved({}, None, {}))
    assert Place.of(where).folders() == ["000001"]
    assert read(where) == {1: 1.0}


def test_a_bucket_that_is_not_there_is_told_by_its_name(options: str) -> None:
    where = f"s3://user:word@none/c?{options}"
    with pytest.raises(hr.HotrowError) as refused:
        write_checkpoint(where, None, GivenRows({1: 1.0}, set(), 1, 1), Saved({}, None, {}))
    assert str(refused.value).startswith("s3://none/c: the checkpoint (65.5 kB) cannot be written: ")
    assert "are free" not in str(refused.value)  # nothing is known about the room there
