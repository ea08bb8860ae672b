"""The event log: what is written is read again, a cut line costs itself alone, and odd numbers are named."""

import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.obs.events import EventLog, read_events

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.text() | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def write_one(folder: Path, **fields: Any) -> dict[str, Any]:
    with closing(EventLog(folder, clock=lambda: 12.5)) as log:
        log.write("progress", **fields)
    return read_events(folder / "events.jsonl").events[-1]


@given(value=PLAIN)
def test_what_json_can_hold_comes_back_as_it_was(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    event = write_one(tmp_path_factory.mktemp("run"), value=value)
    assert event == {"time": 12.5, "kind": "progress", "value": value}


def test_lines_are_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "runs" / "monday")
    log.write("warning", text="first")
    assert [event["text"] for event in read_events(log.path).events] == ["first"]
    log.close()


def test_numbers_that_json_does_not_know_become_null_and_are_named(tmp_path: Path) -> None:
    metrics = {"auc": math.nan, "logloss": math.inf, "rows": 3}
    event = write_one(tmp_path, loss=-math.inf, metrics=metrics, points=[1.0, math.nan], lr=0.1)
    assert event["nonfinite"] == ["loss", "metrics.auc", "metrics.logloss", "points.1"]
    assert event["loss"] is None
    assert event["metrics"] == {"auc": None, "logloss": None, "rows": 3}
    assert event["points"] == [1.0, None]
    assert event["lr"] == 0.1


def test_events_without_odd_numbers_do_not_mention_them(tmp_path: Path) -> None:
    assert "nonfinite" not in write_one(tmp_path, loss=0.5)


def test_arrays_tensors_and_paths_are_written_plainly(tmp_path: Path) -> None:
    event = write_one(
        tmp_path,
        rows=np.int64(3),
        loss=np.float32(0.5),
        roc=np.zeros((1, 2)),
        value=torch.tensor(2.0),
        path=Path("a/b"),
    )
    assert {name: event[name] for name in ("rows", "loss", "roc", "value", "path")} == {
        "rows": 3, "loss": 0.5, "roc": [[0.0, 0.0]], "value": 2.0, "path": "a/b",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["time", "nonfinite"])
def test_the_log_s_own_fields_are_refused(name: str, tmp_path: Path) -> None:
    fields: Mapping[str, Any] = {name: 1}
    with closing(EventLog(tmp_path)) as log, pytest.raises(InputError, match=name):
        log.write("start", **fields)
    assert read_events(tmp_path / "events.jsonl").events == []


def test_what_has_no_plain_form_is_refused_with_its_place(tmp_path: Path) -> None:
    with closing(EventLog(tmp_path)) as log, pytest.raises(InputError, match=r"metrics\.auc"):
        log.write("evaluation", metrics={"auc": object()})


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_last_line_is_counted_and_swallows_nothing(cut: int, tmp_path: Path) -> None:
    with closing(EventLog(tmp_path)) as log:
        log.write("start", run="monday")
        log.write("warning", text="lost")
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    whole_without_its_end = cut == 1  # only the line feed is gone
    found = read_events(path)
    assert [event["kind"] for event in found.events] == ["start", "warning"][: 2 if whole_without_its_end else 1]
    assert found.unreadable == (0 if whole_without_its_end else 1)
    with closing(EventLog(tmp_path)) as log:
        log.write("start", run="monday", resumed=True)
    again = read_events(path)
    assert again.events[-1]["resumed"] is True
    assert (len(again.events), again.unreadable) == (len(found.events) + 1, found.unreadable)


def test_appending_to_a_whole_log_leaves_no_empty_line(tmp_path: Path) -> None:
    for _ in range(2):
        write_one(tmp_path, loss=1)
    assert "\n\n" not in (tmp_path / "events.jsonl").read_text()


STRANGE = {
    "no JSON": b"hello\n",
    "no object": b"[1, 2]\n",
    "no kind": b'{"time": 1}\n',
    "a kind that is no text": b'{"time": 1, "kind": 3}\n',
    "no time": b'{"kind": "start"}\n',
    "no UTF-8": b'{"time": 1, "kind": "\xff"}\n',
    "nested beyond reason": b'{"time": 1, "kind": "a", "x": ' + b"[" * 200_000 + b"\n",
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE)
def test_lines_that_are_no_event_are_counted(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"time": 1, "kind": "start"}\n' + line + b'{"time": 2, "kind": "end", "loss": NaN}\n')
    found = read_events(path)
    assert [event["kind"] for event in found.events] == ["start", "end"]
    assert found.events[-1]["loss"] is None
    assert found.unreadable == 1


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with closing(EventLog(tmp_path)) as log, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: log.write("progress", number=number, pad="x" * 500), range(400)))
    found = read_events(tmp_path / "events.jsonl")
    assert sorted(event["number"] for event in found.events) == list(range(400))
    assert found.unreadable == 0


def test_a_line_of_text_stays_a_line(tmp_path: Path) -> None:
    write_one(tmp_path, text="a\nb\u2028c")
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["text"] == "a\nb\u2028c"
