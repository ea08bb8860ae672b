"""Files at a URI of S3, on a server that this test starts: found, opened, and read by several loaders."""

import logging
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from hotrow.data.config import DataConfig, open_data
from hotrow.data.files import find_files
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.errors import InputError
from unit.runtime.loader_threads import ROWS, SCHEMA, loaders_of, local_plan, remote_plan, table

moto = pytest.importorskip("moto.server", reason="needs moto, which `make install` installs")


@pytest.fixture(scope="module")
def options() -> Iterator[str]:
    """A bucket with two files, and what a URI needs to find the server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
    bucket = fs.S3FileSystem(access_key="user", secret_key="word", allow_bucket_creation=True, **given)
    bucket.create_dir("clicks")
    for day, part in enumerate((table().slice(0, 200), table().slice(200))):
        pq.write_table(part, f"clicks/days/day_{day}.parquet", filesystem=bucket, row_group_size=40)
    yield "&".join(f"{name}={value}" for name, value in given.items())
    server.stop()


def test_paths_and_globs_name_files_and_messages_hold_no_password(options: str) -> None:
    found = find_files(f"s3://user:word@clicks/days/day_?.parquet?{options}")
    assert [file.name for file in found] == ["s3://clicks/days/day_0.parquet", "s3://clicks/days/day_1.parquet"]
    (one,) = find_files(f"s3://user:word@clicks/days/day_1.parquet?{options}")
    assert one.name == "s3://clicks/days/day_1.parquet"
    assert not one.is_local
    assert one.file().read() == one.stream().read()
    for wrong, why in (("no.parquet", "there is no such file"), ("no*", "no file has such a name"), ("", "directory")):
        with pytest.raises(InputError, match=why) as refused:
            find_files(f"s3://user:word@clicks/days/{wrong}?{options}")
        assert "word" not in str(refused.value)


def test_loaders_read_the_same_batches_as_this_process(options: str) -> None:
    where = f"s3://user:word@clicks/days/*.parquet?{options}"
    config = DataConfig(format="parquet", train=where, label="click", numbers=["x"], ids=["row"])
    expected = local_plan(Loader(open_data(config).train, 24, shuffle=48, seed=1))
    assert sum(len(each[3][0]) for each in expected) == ROWS
    with loaders_of(2) as loaders:
        assert remote_plan(loaders, Loader(ParquetSource(where, SCHEMA), 24, shuffle=48, seed=1)) == expected
