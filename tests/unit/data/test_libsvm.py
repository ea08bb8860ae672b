"""libsvm, libfm and libffm lines as bags of ids."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from hotrow.data.decode import Decoder
from hotrow.data.libsvm import SCHEMA, LibsvmSource
from hotrow.data.schema import Label
from hotrow.errors import InputError


def write(folder: Path, text: str | bytes, name: str = "a.libsvm") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def rows(source: LibsvmSource, skip: int = 0) -> list[tuple[float, list[int]]]:
    return [(row["label"], row["features"]) for batch in source.read(skip) for row in batch.to_pylist()]


def test_indices_whose_value_is_one_are_a_bag(tmp_path: Path) -> None:
    source = LibsvmSource(write(tmp_path, "1 3:1 7:1.0\n0\n-1  12:1.\t3:1 \r\n"))
    assert rows(source) == [(1.0, [3, 7]), (0.0, []), (-1.0, [12, 3])]
    batch = Decoder(source.schema).batch(next(source.read()))
    assert batch.parts[0].features == ("features",)
    assert batch.parts[0].keys.tolist() == [3, 7, 12, 3]
    assert batch.parts[0].bounds is not None
    assert batch.parts[0].bounds.tolist() == [0, 2, 2, 4]


@pytest.mark.parametrize("pair", ["-3:1", "1000000000000000000:1", "+3:1", "3.0:1", ":1"])
def test_only_whole_numbers_of_at_most_18_digits_are_indices(pair: str, tmp_path: Path) -> None:
    source = LibsvmSource(write(tmp_path, f"1 999999999999999999:1\n1 {pair}\n0 0:1 007:1\n"), limit=1)
    assert rows(source) == [(1.0, [999999999999999999]), (0.0, [0, 7])]


def test_of_libffm_triples_the_feature_is_the_id(tmp_path: Path) -> None:
    assert rows(LibsvmSource(write(tmp_path, "1 0:3:1 1:7:1\n"))) == [(1.0, [3, 7])]


def test_comments_and_empty_lines_are_no_faults(tmp_path: Path) -> None:
    source = LibsvmSource(write(tmp_path, "# made by hand\n1 2:1 # why\n\n  \n0 5:1\n"))
    assert rows(source) == [(1.0, [2]), (0.0, [5])]
    assert (source.trouble.malformed, source.trouble.blank) == (0, 3)


def test_a_file_of_comments_only_and_an_empty_one_have_no_rows(tmp_path: Path) -> None:
    for text in ("# nothing\n\n", ""):
        assert rows(LibsvmSource(write(tmp_path, text))) == []


def test_malformed_lines_are_left_out_and_named(tmp_path: Path) -> None:
    text = b"1 3:1\nx 3:1\n1 3:0.5\n1 3\n1 qid:4 3:1\n1 a:1\n1 1234567890123456789:1\n1 \xff:1\n0 4:1\nnan 1:1\n1 :1\n"
    source = LibsvmSource(write(tmp_path, text), limit=9)
    assert rows(source) == [(1.0, [3]), (0.0, [4])]
    reason = "must be index:1 or field:index:1: a batch has no place for other values"
    assert [(fault.line, fault.reason) for fault in source.trouble.first] == [
        (2, "the label is no number"),
        (3, f"'3:0.5' {reason}"),
        (4, f"'3' {reason}"),
        (5, f"'qid:4' {reason}"),
        (6, f"'a:1' {reason}"),
        (7, f"'1234567890123456789:1' {reason}"),
        (8, f"'\ufffd:1' {reason}"),
        (10, "the label is no number"),
        (11, f"':1' {reason}"),
    ]
    with pytest.raises(InputError, match="9 of the first 11 lines are malformed, the limit is 8 lines"):
        rows(LibsvmSource(write(tmp_path, text), limit=8))


def test_skip_packed_files_and_several_of_them(tmp_path: Path) -> None:
    one = write(tmp_path, "1 1:1\n0 2:1\n")
    two = write(tmp_path, gzip.compress(b"1 3:1\n"), "b.txt.gz")
    source = LibsvmSource([one, two])
    whole = rows(source)
    assert [bag for _, bag in whole] == [[1], [2], [3]]
    for skip in range(5):
        assert rows(source, skip) == whole[skip:]
    assert source.rows() is None


def test_without_labels_a_line_may_begin_with_its_first_feature(tmp_path: Path) -> None:
    source = LibsvmSource(write(tmp_path, "3:1 4:1\n? 5:1\n1 6:1\n"), labels=False)
    assert [bag for _, bag in rows(source)] == [[3, 4], [5], [6]]
    (record,) = source.read()
    assert Decoder(source.schema).batch(record, labels=False).labels is None


def test_labels_of_minus_one_become_zero_by_a_bound(tmp_path: Path) -> None:
    schema: Any = SCHEMA.model_copy(update={"label": (Label(column="label", at_least=0.5),)})
    source = LibsvmSource(write(tmp_path, "-1 3:1\n+1 4:1\n"), schema)
    labels = Decoder(source.schema).batch(next(source.read())).labels
    assert labels is not None
    assert labels.tolist() == [[0.0], [1.0]]
