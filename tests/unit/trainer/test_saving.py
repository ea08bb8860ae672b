"""Checkpoints while training goes on: of one moment, full or as changes, one at a time."""

import shutil
from pathlib import Path
from threading import Event

import numpy as np
import pytest

import hotrow as hr
from hotrow.checkpoint import SavedCheckpoint, write_checkpoint
from hotrow.trainer.trainer import Trainer

FIELDS = hr.InputShape(numbers=0, fields={"user": 1})


def batches(count: int, seed: int = 0) -> list[hr.data.Batch]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        ids = hr.data.FeatureBlock("default", "one", ("user",), rng.integers(0, 200, 16))
        labels = rng.integers(0, 2, (16, 1)).astype(np.float32)
        made.append(hr.data.Batch((ids,), np.zeros((16, 0), np.float32), labels=labels))
    return made


def trainer(**table: object) -> Trainer:
    settings = {"dim": 1, **table}
    return hr.Trainer(hr.models.build("lr", FIELDS), hr.Table(**settings), global_batch=16, report_every_s=0.0)


def fit(made: Trainer, count: int, seed: int = 0) -> None:
    list(made.fit(batches(count, seed)))


def rows(made: Trainer) -> dict[int, tuple[bytes, ...]]:
    found = {}
    for chunk in made.tables.tiers["default"].export():
        for at, key in enumerate(chunk.keys.tolist()):
            fields = (column[at].tobytes() for column in chunk.fields.values())
            found[key] = chunk.values[at].tobytes(), chunk.state[at].tobytes(), *fields
    return found


def test_what_is_saved_is_the_moment_of_the_call_whatever_is_trained_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer()
    fit(made, 5)
    then, step = rows(made), made.step
    go = Event()

    def late(*given: object, **named: object) -> object:
        assert go.wait(20)
        return write_checkpoint(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("hotrow.checkpoint.write_checkpoint", late, raising=False)
    under_way = made.save_in_background(tmp_path / "c")
    fit(made, 5, seed=1)
    assert not under_way.done
    assert rows(made) != then
    go.set()
    assert made.finish_saving() is under_way
    assert under_way.copied_bytes > 0
    other = trainer()
    other.load(tmp_path / "c")
    assert rows(other) == then
    assert other.step == step
    made.close()
    other.close()


@pytest.mark.parametrize("table", [{}, {"capacity": 64}, {"capacity": 64, "eviction": "lfu"}, {"type": "bfloat16"}])
def test_a_full_checkpoint_and_changes_load_as_a_full_one_of_that_moment(
    table: dict[str, object], tmp_path: Path
) -> None:
    made = trainer(**table)
    for turn in range(3):
        fit(made, 4, seed=turn)
        made.save(tmp_path / "chain", keep=9, delta=True)
    made.save(tmp_path / "whole")
    kinds = [link.manifest.kind for link in SavedCheckpoint.open(tmp_path / "chain").chain]
    assert kinds == ["full", "delta", "delta"]
    loaded = []
    for folder in ("chain", "whole"):
        other = trainer(**table)
        other.load(tmp_path / folder)
        loaded.append(rows(other))
        if "capacity" in table:
            tier = other.tables.tiers["default"]
            loaded[-1]["order"] = [tier.eviction_order(each).tolist() for each in range(tier.partitions)]  # type: ignore
        other.close()
    assert loaded[0] == loaded[1]
    made.close()


def test_a_load_or_another_folder_ends_a_chain(tmp_path: Path) -> None:
    made = trainer()
    fit(made, 2)
    kinds = []
    for folder in ("a", "a", "b", "a", "a"):
        made.save(tmp_path / folder, keep=9, delta=True)
        kinds.append(SavedCheckpoint.open(tmp_path / folder).manifest.kind)
    made.load(tmp_path / "a")
    made.save(tmp_path / "a", keep=9, delta=True)
    assert [*kinds, SavedCheckpoint.open(tmp_path / "a").manifest.kind] == [
        "full", "delta", "full", "full", "delta", "full",
    ]  # fmt: skip
    made.close()


def test_a_save_that_fails_is_told_and_loses_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer()
    fit(made, 2)
    made.save(tmp_path / "c", keep=9, delta=True)
    fit(made, 2, seed=1)

    def refused(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("hotrow.checkpoint.local_cut.write_rows", refused)
        with pytest.raises(hr.errors.FileError, match="No space left"):
            made.save(tmp_path / "c", keep=9, delta=True)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["000001"]
    fit(made, 1, seed=2)
    made.save(tmp_path / "c", keep=9, delta=True)
    assert SavedCheckpoint.open(tmp_path / "c").manifest.kind == "delta"
    other = trainer()
    other.load(tmp_path / "c")
    assert rows(other) == rows(made)
    made.close()
    other.close()


def test_counts_of_admission_come_back(tmp_path: Path) -> None:
    for admission in (hr.AtLeast(count=3), hr.AtLeast(count=3, filter=4096)):
        made, other = trainer(admission=admission), trainer(admission=admission)
        fit(made, 3)
        made.save(tmp_path / "c")
        other.load(tmp_path / "c")
        for each in (made, other):
            fit(each, 2, seed=5)
        assert set(rows(made)) == set(rows(other))
        made.close()
        other.close()


def test_a_base_that_is_gone_or_another_makes_the_next_one_full(tmp_path: Path) -> None:
    made = trainer()
    fit(made, 2)
    for _ in range(2):
        made.save(tmp_path / "c", keep=9, delta=True)
    shutil.rmtree(tmp_path / "c" / "000002")
    fit(made, 1, seed=1)
    made.save(tmp_path / "c", keep=9, delta=True)
    found = SavedCheckpoint.open(tmp_path / "c")
    assert (found.manifest.number, found.manifest.kind) == (2, "full")
    other = trainer()
    other.load(tmp_path / "c")
    assert rows(other) == rows(made)
    made.close()
    other.close()


def test_an_old_checkpoint_that_cannot_be_removed_does_not_fail_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = trainer()
    fit(made, 2)
    made.save(tmp_path / "c", delta=True)
    fit(made, 2, seed=1)

    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    with monkeypatch.context() as patched:
        patched.setattr("hotrow.checkpoint.place.Place.delete", busy)
        made.save(tmp_path / "c")
    assert "checkpoint 000001, which is to be removed, cannot be written" in caplog.text
    fit(made, 2, seed=2)
    made.save(tmp_path / "c", delta=True)
    other = trainer()
    other.load(tmp_path / "c")
    assert rows(other) == rows(made)
    made.close()
    other.close()


def test_an_interrupt_while_a_save_is_waited_for_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer()
    fit(made, 2)
    made.save_in_background(tmp_path / "c", delta=True)
    with monkeypatch.context() as patched:
        patched.setattr("hotrow.trainer.saving.Saving.wait", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.finish_saving()
    fit(made, 2, seed=1)
    made.save(tmp_path / "c", delta=True)
    assert SavedCheckpoint.open(tmp_path / "c").manifest.kind == "delta"
    made.close()


def _interrupted(_: object) -> None:
    raise KeyboardInterrupt


def test_a_keep_of_nothing_is_refused_before_anything_is_held(tmp_path: Path) -> None:
    made = trainer()
    with pytest.raises(hr.ConfigError, match="keep=0"):
        made.save(tmp_path / "c", keep=0)
    made.save(tmp_path / "c")
    made.close()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    made = trainer()
    (tmp_path / "c").write_text("a file")
    with pytest.raises(hr.errors.FileError, match=r"c: the checkpoint .*cannot be written"):
        made.save(tmp_path / "c")
    (tmp_path / "c").unlink()
    made.save(tmp_path / "c")
    made.close()


def test_a_load_that_is_refused_leaves_the_last_checkpoint_of_the_run(tmp_path: Path) -> None:
    """What is lost later comes from it."""
    other = trainer()
    fit(other, 1)
    other.save(tmp_path / "other")
    other.close()
    dense = next((tmp_path / "other" / "000001").glob("dense*"))
    dense.write_bytes(dense.read_bytes()[:-1] + b"?")
    run = trainer()
    fit(run, 2)
    run.save(tmp_path / "own")
    with pytest.raises(hr.InputError, match="was changed"):
        run.load(tmp_path / "other")
    newest = run.state.last_checkpoint()
    assert newest is not None
    assert newest.where.endswith("own")
    run.load(tmp_path / "own")
    assert run.state.last_checkpoint() == newest
    run.close()
