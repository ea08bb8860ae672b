"""Text files: what is read, what is left out with its line number, and what is refused."""

import bz2
import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.data import blocks as blocks_module
from hotrow.data.blocks import MARK, TextBlock, blocks
from hotrow.data.files import File
from hotrow.data.parser import Dialect
from hotrow.data.schema import Schema
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError, InputError
from profiles import examples

SCHEMA = Schema(label="y", numbers=["n"], ids=["a"])
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def rows(source: TextSource, skip: int = 0) -> list[dict[str, Any]]:
    return [row for batch in source.read(skip) for row in batch.to_pylist()]


def told(source: TextSource) -> list[tuple[int, str]]:
    return [(fault.line, fault.reason) for fault in source.trouble.first]


def test_the_schemas_columns_are_read_numbers_as_numbers_and_the_rest_as_text(write: Write) -> None:
    source = TextSource(write("a,extra,y,n\nx,1,0,1.5\n42,2,1,\n,3,1,-2\n"), SCHEMA)
    first, second, third = rows(source)
    assert first == {"y": 0.0, "n": 1.5, "a": "x"}
    assert (second["a"], third["a"]) == ("42", None)
    assert second["n"] is None
    assert source.rows() is None


def test_a_source_may_be_read_again_and_from_any_row_on(write: Write) -> None:
    lines = "".join(f"{row % 2},{row},r{row}\n" for row in range(50))
    source = TextSource([write("y,n,a\n" + lines), write("n,a,y\n7,last,1\n", "two.csv")], SCHEMA)
    whole = rows(source)
    assert [row["a"] for row in whole] == [*(f"r{row}" for row in range(50)), "last"]
    for skip in (0, 1, 49, 50, 51, 60):
        assert rows(source, skip) == whole[skip:]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("d.csv", bytes),
        ("d.csv.gz", gzip.compress),
        ("d.csv.bz2", bz2.compress),
        ("d.csv.zst", lambda data: pa.Codec("zstd").compress(data, asbytes=True)),
        ("d.gz", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    ],
)
def test_packed_files_are_unpacked_by_their_names(name: str, pack: Callable[[bytes], bytes], write: Write) -> None:
    source = TextSource(write(pack(b"y,n,a\n1,2,x\n0,3,z\n"), name), SCHEMA)
    assert [row["a"] for row in rows(source)] == ["x", "z"]


def test_a_packed_file_that_ends_too_early_is_told(write: Write) -> None:
    data = gzip.compress("".join(f"1,{row},a{row}\n" for row in range(10_000)).encode())
    source = TextSource(write(b"y,n,a\n", "a.csv"), SCHEMA)
    assert rows(source) == []
    cut = TextSource(
        write(data[: len(data) // 2], "cut.csv.gz"), SCHEMA, Dialect(header=False, columns=("y", "n", "a"))
    )
    with pytest.raises(InputError, match=r"cut\.csv\.gz: cannot be read on"):
        rows(cut)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_end_in_either_way_and_the_last_may_lack_its_end(end: str, last: bool, write: Write) -> None:
    text = f"y,n,a{end}1,2,x{end}0,3,z{end if last else ''}"
    source = TextSource(write(text), SCHEMA)
    assert rows(source) == [{"y": 1.0, "n": 2.0, "a": "x"}, {"y": 0.0, "n": 3.0, "a": "z"}]
    assert source.trouble.malformed == 0


def test_quotes_byte_order_marks_and_odd_names(write: Write) -> None:
    schema = Schema(label="is it?", ids=["last, name"])
    text = MARK.decode() + 'is it?,"last, name" \n1,"Doe, ""J."""\n"0",5" disk\n'
    assert [row["last, name"] for row in rows(TextSource(write(text), schema))] == ['Doe, "J."', '5" disk']
    unquoted = TextSource(write('y\ta\n1\t"x\n'), Schema(label="y", ids=["a"]), Dialect(delimiter="\t", quote=None))
    assert rows(unquoted) == [{"y": 1.0, "a": '"x'}]


def test_names_may_be_given_for_a_file_without_or_instead_of_a_header(write: Write) -> None:
    given = ("y", "n", "a")
    bare = TextSource(write("1,2,x\n"), SCHEMA, Dialect(header=False, columns=given))
    renamed = TextSource(write("p,q,r\n1,2,x\n"), SCHEMA, Dialect(columns=given))
    assert rows(bare) == rows(renamed) == [{"y": 1.0, "n": 2.0, "a": "x"}]


def test_without_labels_their_column_may_be_absent(write: Write) -> None:
    header = TextSource(write("n,a\n2,x\n"), SCHEMA, labels=False)
    given = Dialect(header=False, columns=("y", "n", "a"))
    absent = TextSource(write("2,x\n", "b.csv"), SCHEMA, given, labels=False)
    ignored = TextSource(write("oops,2,x\n", "c.csv"), SCHEMA, given, labels=False)
    assert rows(header) == rows(absent) == rows(ignored) == [{"n": 2.0, "a": "x"}]


def test_other_texts_may_mean_missing(write: Write) -> None:
    source = TextSource(write("y,n,a\n1,NA,NULL\n1,1,\n"), SCHEMA, Dialect(missing=("", "NA", "NULL")))
    assert [row["a"] for row in rows(source)] == [None, None]


def test_other_encodings_and_longer_delimiters(write: Write) -> None:
    latin = Dialect(delimiter="::", quote=None, header=False, columns=("y", "a"), encoding="latin-1")
    source = TextSource(write("1::caf\xe9\n0::a:b\n".encode("latin-1")), Schema(label="y", ids=["a"]), latin)
    assert [row["a"] for row in rows(source)] == ["café", "a:b"]
    cyrillic = Dialect(encoding="cp1251")
    bad = TextSource(write(b"y,a\n1,\xe4\n1,\x98\n"), Schema(label="y", ids=["a"]), cyrillic)
    assert [row["a"] for row in rows(bad)] == ["д"]
    assert told(bad) == [(3, "is no cp1251 text")]


@pytest.mark.parametrize("encoding", ["utf-16", "no-such"])
def test_encodings_that_do_not_write_ascii_as_ascii_are_refused(encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"encoding='{encoding}'"):
        blocks_module.check_encoding(encoding)


MALFORMED = (
    b"y,n,a\n"  # 1
    b"1,1,ok\n"
    b"1,1\n"  # 3: too few
    b"\n"  # 4: empty
    b"1,1,x,x\n"  # 5: too many
    b"yes,1,x\n"  # 6: no label
    b",1,x\n"  # 7: label missing
    b"1,one,x\n"  # 8: no number
    b"1,1,\xff\n"  # 9: no UTF-8
    b"0,,ok too\n"
    b'1,1,"open\n'  # 11: quote
    b"1,inf,x\n"  # 12
    b"1,1,fi\rne\n"  # 13
    b"0,7,last\n"
)


def test_malformed_lines_are_left_out_and_named(write: Write) -> None:
    source = TextSource(write(MALFORMED), SCHEMA, limit=1.0)
    assert [row["a"] for row in rows(source)] == ["ok", "ok too", "last"]
    assert told(source) == [
        (3, "2 columns instead of 3"),
        (5, "4 columns instead of 3"),
        (6, "y 'yes' is no number"),
        (7, "y is missing"),
        (8, "n 'one' is no number"),
        (9, "is no utf-8 text"),
        (11, "a quoted value does not end on its line"),
        (12, "n 'inf' is no number"),
        (13, "a carriage return is within the line"),
    ]
    assert (source.trouble.malformed, source.trouble.blank) == (9, 1)
    assert source.trouble.first[0].file.endswith("data.csv")
    assert [fault.text for fault in source.trouble.first[:2]] == ["1,1", "1,1,x,x"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 40, 1000])
def test_lines_are_numbered_over_blocks(size: int, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TextSource(write(MALFORMED), SCHEMA, limit=1.0)
    expected = rows(whole)
    monkeypatch.setattr("hotrow.data.text.blocks", lambda file: blocks(file, size))
    cut = TextSource(write(MALFORMED, "cut.csv"), SCHEMA, limit=1.0)
    assert repr(rows(cut)) == repr(expected)
    assert told(cut) == told(whole)
    assert cut.trouble.blank == 1


cells = st.sampled_from(["1", "0", "2.5", "", "x", "7"])
line_texts = st.lists(cells, min_size=1, max_size=4).map(",".join) | st.just("") | st.just("1,2,y")


@settings(max_examples=examples(60))
@given(st.lists(line_texts, max_size=30), st.integers(1, 60))
def test_good_rows_and_faults_are_those_that_pythons_reader_sees(lines: list[str], size: int) -> None:
    good, bad = [], []
    for number, line in enumerate(lines, 1):
        row = next(csv.reader([line]), [])
        if line and (len(row) != 3 or not _is_number(row[0]) or not (row[1] == "" or _is_number(row[1]))):
            bad.append(number)
        elif line:
            good.append(row[2] or None)
    source = TextSource(Memory.of(lines), SCHEMA, Dialect(header=False, columns=("y", "n", "a")), limit=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hotrow.data.text.blocks", lambda file: blocks(file, size))
        if bad and not good:
            with pytest.raises(InputError, match="nothing else was found"):
                rows(source)
            return
        assert [row["a"] for row in rows(source)] == good
    assert [fault.line for fault in source.trouble.first] == bad[:20]
    assert source.trouble.malformed == len(bad)
    assert source.trouble.blank == lines.count("")


def _is_number(text: str) -> bool:
    return text in ("1", "0", "2", "2.5", "7")


@dataclass(frozen=True, slots=True)
class Memory(File):
    """A file that lies in memory."""

    name: str = "memory"
    path: str = "memory"
    data: bytes = b""

    @classmethod
    def of(cls, lines: list[str]) -> "Memory":
        return cls(data="".join(f"{line}\n" for line in lines).encode())

    def stream(self) -> Any:
        return io.BytesIO(self.data)


def test_a_second_reading_counts_no_line_again(write: Write) -> None:
    source = TextSource(write("y,n,a\n1,1,x\n1,1\n\n1,1,z\n\n1,last\n"), SCHEMA, limit=5)
    for _ in range(3):
        assert len(rows(source)) == 2
    assert (source.trouble.malformed, source.trouble.blank, len(source.trouble.first)) == (2, 2, 2)


def test_only_the_first_twenty_are_kept_and_all_are_counted(write: Write) -> None:
    source = TextSource(write("y,n,a\n" + "1,1\n" * 30 + "1,1,x\n"), SCHEMA, limit=30)
    rows(source)
    assert source.trouble.malformed == 30
    assert [fault.line for fault in source.trouble.first] == list(range(2, 22))


def test_a_long_line_is_shown_in_part(write: Write) -> None:
    source = TextSource(write("y,n,a\n1,1,x\n" + "z" * 500 + "\n"), SCHEMA, limit=1)
    rows(source)
    assert source.trouble.first[0].text == "z" * 200 + "…"


def test_the_limit_as_a_count_is_inclusive(write: Write) -> None:
    text = "y,n,a\n" + "1,1\n" * 3 + "1,1,x\n"
    assert len(rows(TextSource(write(text), SCHEMA, limit=3))) == 1
    sentence = (
        r"3 of the first 4 lines are malformed, .* 2 lines: .*data\.csv line 2: 2 columns instead of 3 \('1,1'\); "
    )
    with pytest.raises(InputError, match=sentence):
        rows(TextSource(write(text), SCHEMA, limit=2))


def test_the_limit_as_a_fraction_is_inclusive_and_taken_of_at_least_a_thousand_rows(write: Write) -> None:
    def read(bad: int, good: int) -> int:
        return len(rows(TextSource(write("y,n,a\n" + "1,1\n" * bad + "1,1,x\n" * good), SCHEMA, limit=0.01)))

    assert read(bad=10, good=5) == 5
    assert read(bad=20, good=1980) == 1980
    for bad, good in ((11, 5), (21, 1979)):
        with pytest.raises(InputError, match=f"{bad} of .* lines are malformed, the limit is 0.01 of the rows"):
            read(bad, good)


def test_with_a_limit_of_nothing_the_first_fault_is_refused(write: Write) -> None:
    for limit in (0, 0.0):
        with pytest.raises(InputError, match="1 of the first 2 lines are malformed"):
            rows(TextSource(write("y,n,a\n1,1\n1,1,x\n"), SCHEMA, limit=limit))


def test_a_file_of_another_kind_is_refused_whatever_the_limit(write: Write) -> None:
    with pytest.raises(InputError, match="2 of 2 lines are malformed, nothing else was found"):
        rows(TextSource(write("y,n,a\n1;1;x\n1;1;z\n"), SCHEMA, limit=1.0))


def test_a_missing_column_is_told_with_those_there_are(write: Write) -> None:
    with pytest.raises(
        InputError, match=r"data\.csv: there is no column 'n' \(did you mean N\?\); its columns are 'y', 'N'"
    ):
        rows(TextSource(write("y,N,a\n1,1,x\n"), SCHEMA))
    with pytest.raises(InputError, match="column 'a' occurs twice"):
        rows(TextSource(write("y,n,a,a\n1,1,x,x\n"), SCHEMA))
    assert len(rows(TextSource(write("y,n,a,b,b\n1,1,x,x,x\n"), SCHEMA))) == 1


def test_an_empty_file_and_one_with_a_header_only(write: Write) -> None:
    with pytest.raises(
        InputError, match=r"data\.csv: is empty: a first line with the names of its columns was expected"
    ):
        rows(TextSource(write(""), SCHEMA))
    assert rows(TextSource(write("", "e.csv"), SCHEMA, Dialect(header=False, columns=("y", "n", "a")))) == []
    for text in ("y,n,a\n", "y,n,a"):
        assert rows(TextSource(write(text), SCHEMA)) == []


def test_a_file_that_is_not_there_and_a_directory_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        TextSource(tmp_path / "none.csv", SCHEMA)
    with pytest.raises(InputError, match="is a directory"):
        TextSource(tmp_path, SCHEMA)


def test_a_line_without_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "LINE_MAX", 50)
    file = TextSource(write("y,n,a\n" + "z" * 200), SCHEMA)._files[0]
    with pytest.raises(InputError, match=r"line 2: is longer than 50 bytes: is this a text file\?"):
        list(blocks(file, 16))


pieces = st.sampled_from(['"', '"', ",", ",", "\r", "\n", "\r\n", "a", "1", " ", "1,1,a\n", "1,1,a\n"])


@given(st.lists(pieces, max_size=25).map("".join), st.integers(1, 8))
def test_what_is_good_does_not_depend_on_the_blocks(text: str, size: int) -> None:
    def read(cut: int) -> tuple[str, list[int], int] | None:
        source = TextSource(Memory.of([text]), SCHEMA, Dialect(header=False, columns=("y", "n", "a")), limit=100)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hotrow.data.text.blocks", lambda file: blocks(file, cut))
            try:
                found = repr(rows(source))
            except InputError:
                return None  # all of it is malformed
        return found, [line for line, _ in told(source)], source.trouble.blank

    assert read(size) == read(1000)


@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"")), max_size=12), st.integers(1, 30))
def test_blocks_hold_every_line_once_with_its_number(lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    found = list(blocks(Memory(data=data), size))
    assert b"".join(block.data for block in found) == data.removeprefix(MARK)
    number = 1
    for block in found:
        assert block.first == number
        assert block.size == len(block.lines())
        number += block.size
    assert all(block.data.endswith(b"\n") for block in found[:-1])


def test_a_block_without_its_first_line() -> None:
    assert TextBlock.of(1, b"a\nb\nc").without_first() == TextBlock(2, b"b\nc", 2)
    assert TextBlock.of(1, b"a").without_first() == TextBlock(2, b"", 0)


def peak(batches: Iterator[pa.RecordBatch]) -> int:
    before, most = pa.total_allocated_bytes(), 0
    for _ in batches:
        most = max(most, pa.total_allocated_bytes() - before)
    return most


def test_memory_does_not_grow_with_the_file(write: Write) -> None:
    line = "1,2,abcdefgh\n"
    source = TextSource(write("y,n,a\n" + line * 1_000_000), SCHEMA)  # 13 MB, seven blocks
    assert peak(source.read()) < 30 * 2**20
