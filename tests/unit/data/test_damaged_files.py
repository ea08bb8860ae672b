"""Files with bytes that changed on the way are read or refused with a sentence; nothing else comes out, on no way."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.config import DataConfig, open_data
from hotrow.data.decode import Decoder
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.text import TextSource
from hotrow.errors import HotrowError, InputError

ROWS = 60
SCHEMA = Schema(label="y", numbers=["n"], ids=["a"])


def parquet(path: Path) -> dict[str, Any]:
    every = range(ROWS)
    table = pa.table(
        {
            "y": [row % 2 for row in every],
            "n": [str(row) for row in every],
            "a": [f"üser{row % 7}" for row in every],
            "kind": pa.array([f"c{row % 3}" for row in every]).dictionary_encode(),
            "tags": [[f"t{row % 4}", "b"] for row in every],
            "when": pa.array([1_700_000_000 + row for row in every], pa.timestamp("s")),
        }
    )
    pq.write_table(table, path, row_group_size=20, compression="none")
    columns = {"label": "y", "numbers": ["n"], "ids": ["a", "kind", "tags"], "time": "when", "group": "a"}
    return {"format": "parquet", **columns}


def text(path: Path) -> dict[str, Any]:
    lines = [f'{row % 2},{row * 0.5},"üser{row % 7}",i{row},2024-03-01T08:15:00' for row in range(ROWS)]
    path.write_text("\n".join(["y,n,a,b,when", *lines]) + "\n", encoding="utf-8")
    return {
        "label": "y",
        "numbers": ["n"],
        "ids": ["a", "b"],
        "time": {"column": "when", "format": "%Y-%m-%dT%H:%M:%S"},
    }


def libsvm(path: Path) -> dict[str, Any]:
    path.write_text("".join(f"{row % 2} {row}:1 {row + 7}:1\n" for row in range(ROWS)))
    return {"format": "libsvm", "label": "label", "ids": [{"column": "features", "several": True}]}


MADE: dict[str, Callable[[Path], dict[str, Any]]] = {"parquet": parquet, "csv": text, "libsvm": libsvm}


def read_all(config: DataConfig) -> None:
    source = open_data(config).train
    decoder = Decoder(source.schema)
    source.rows()
    for skip in (0, 25):
        for batch in source.read(skip):
            decoder.batch(batch)


def damaged(whole: bytes, seed: int) -> bytes:
    chance = random.Random(seed)
    data = bytearray(whole)
    for _ in range(chance.choice([1, 1, 2, 5])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.1 else data)


def read_damaged(kind: str, folder: Path, seeds: range) -> None:
    """Each seed is a file; SystemExit with the seed where something else than a sentence comes out."""
    path = folder / f"x.{kind}"
    config = DataConfig(train=str(path), **MADE[kind](path))
    whole = path.read_bytes()
    for seed in seeds:
        path.write_bytes(damaged(whole, seed))
        try:
            read_all(config)
        except HotrowError:
            continue
        except Exception as error:
            raise SystemExit(f"seed {seed} of {kind}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 3000), marks=pytest.mark.slow)], ids=str)
def test_flipped_bytes_give_rows_or_a_sentence_and_nothing_on_standard_error(seeds: range, tmp_path: Path) -> None:
    """In a process of its own: libraries write to standard error by themselves, and may abort."""
    given = [sys.executable, __file__, str(tmp_path), str(seeds.start), str(seeds.stop)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_line_that_is_no_utf8_and_has_too_many_columns_is_malformed_and_arrow_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"y,n,a\n1,2,x\n0,3,\xff\xfe,too,many\n1,4,z\n0,5,more,columns\n")
    source = TextSource(path, SCHEMA)
    assert [batch.num_rows for batch in source.read()] == [2]
    assert [(fault.line, fault.reason) for fault in source.trouble.first] == [
        (3, "is no utf-8 text"),
        (5, "4 columns instead of 3"),
    ]
    assert capfd.readouterr().err == ""  # it was "Exception ignored in ... UnicodeDecodeError"


def test_a_number_that_is_no_utf8_is_a_malformed_row_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"1\xff\xfe"))
    pq.write_table(pa.table({"y": [0, 1], "n": bad, "a": ["x", "y"]}), path)
    source = ParquetSource(path, SCHEMA)
    assert [batch.num_rows for batch in source.read()] == [1]
    (fault,) = source.trouble.first
    assert (fault.line, fault.reason) == (2, r"n '\\xff\\xfe' is no number")
    assert str(path) in str(fault)


def test_a_time_outside_the_calendar_is_a_malformed_row_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    when = pa.array([0, 2**61], pa.timestamp("ms"))
    pq.write_table(pa.table({"y": [0, 1], "n": [1.0, 2.0], "a": ["x", "y"], "when": when}), path, store_schema=False)
    source = ParquetSource(path, Schema(label="y", numbers=["n"], ids=["a"], time="when"))
    assert [batch.num_rows for batch in source.read()] == [1]
    assert "cannot be read as a time" in source.trouble.first[0].reason


def test_names_that_are_no_utf8_are_told_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"y": [0, 1], "n": [1.0, 2.0], "abcdef": ["x", "y"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"abcdef", b"\xffbcdef"))
    with pytest.raises(InputError, match=r"a\.parquet: is no Parquet file that can be read: .*utf-8"):
        ParquetSource(path, SCHEMA)


if __name__ == "__main__":
    folder, first, end = sys.argv[1:]
    for kind in MADE:
        read_damaged(kind, Path(folder), range(int(first), int(end)))
