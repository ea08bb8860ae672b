"""A run opened from its folder is the run that was trained: the same figures, the same predictions, nothing written."""

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow.errors import ConfigError, InputError
from hotrow.metrics import auc
from hotrow.run import Run, load_config, restored
from hotrow.run.folder import CHECKPOINT, SCHEMA
from hotrow.run.restored import Restored, find_run, has_checkpoint
from hotrow.runtime.settings import AnyEngine, Local, Ray
from small_run import CONFIG, clicks, trained, write_csv, write_data


def probabilities(run: Restored, path: Path) -> NDArray[np.float32]:
    return np.concatenate([some.values for some in run.predict(run.unlabelled(str(path)))])[:, 0]


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def test_its_evaluation_is_the_one_of_the_end_of_training(finished: Path) -> None:
    pictures = json.loads((finished / "evaluation.json").read_text())
    before = files_of(finished)
    with Restored(finished) as run:
        split, source = run.part()
        found = run.evaluate(source, split=split)
    assert (split, found.rows) == ("test", 1000)
    assert found.metrics == pytest.approx(pictures["test"]["metrics"], abs=1e-12)
    assert files_of(finished) == before


def test_it_computes_on_the_device_of_the_run_where_it_is_here_and_else_on_any(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device(engine: AnyEngine) -> str:
        config = load_config(finished / "config.toml")
        run = config.run.model_copy(update={"engine": engine})
        with ExitStack() as opened:
            found = restored._in_this_process(config.model_copy(update={"run": run}), finished, opened).run.engine
        assert isinstance(found, Local)
        return found.device

    assert device(Local(device="cpu")) == "cpu"
    assert device(Local(device="cuda:77")) == "auto"
    assert device(Ray()) == "auto"
    monkeypatch.setattr(restored, "device_of", lambda name: name)
    assert device(Local(device="cuda:1")) == "cuda:1"


def test_it_predicts_as_it_evaluates_and_needs_no_labels_for_it(finished: Path, tmp_path: Path) -> None:
    rows, _ = clicks(500, seed=5)
    labels = np.array([float(row[0]) for row in rows])
    with_labels, without = write_csv(tmp_path / "a.csv", rows), write_csv(tmp_path / "b.csv", rows, labels=False)
    with Restored(finished) as run:
        found = run.evaluate(run.source(str(with_labels)))
        given, blind = probabilities(run, with_labels), probabilities(run, without)
    assert np.array_equal(given, blind)
    assert auc(labels, given) == pytest.approx(found.metrics["auc"], abs=1e-6)
    assert found.metrics["auc"] > 0.8  # type: ignore[operator]


def test_ids_that_training_never_met_are_predicted_and_make_no_rows(finished: Path, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "new.csv", [["0", "nobody", "999999", "1.0"]] * 3)
    with Restored(finished) as run:
        rows = len(run.trainer.tables.tiers["default"])
        found = probabilities(run, path)
        assert len(run.trainer.tables.tiers["default"]) == rows
    assert np.ptp(found) == 0
    assert 0 < found[0] < 1


def test_means_and_deviations_are_those_of_training_and_not_measured_again(finished: Path, tmp_path: Path) -> None:
    dear, _ = clicks(200, seed=6)
    path = write_csv(tmp_path / "dear.csv", [[*row[:3], str(1000 + float(row[3]))] for row in dear])
    with Restored(finished) as run:
        transform = run.schema.numbers[0].transform
        assert transform.mean == pytest.approx(1.6, abs=0.2)  # type: ignore[union-attr]
        assert probabilities(run, path).max() < 0.01  # a dear thing is not clicked


def test_the_parts_of_a_split_are_the_same_as_in_training(tmp_path: Path) -> None:
    config = write_data(
        tmp_path, CONFIG.replace('test = "test.csv"', 'split = { by = "fraction", valid = 0.2, test = 0.3 }')
    )
    folder = trained(config)
    told = json.loads((folder / "evaluation.json").read_text())["test"]["metrics"]
    with Restored(folder) as run:
        split, source = run.part()
        assert run.evaluate(source, split=split).metrics == pytest.approx(told, abs=1e-12)


def test_a_training_file_that_has_changed_since_changes_no_evaluation(tmp_path: Path) -> None:
    split = 'split = { by = "rows", train = 2000 }'
    folder = trained(write_data(tmp_path, CONFIG.replace('test = "test.csv"', split)))
    told = json.loads((folder / "evaluation.json").read_text())["test"]["metrics"]
    rows, _ = clicks(3000, seed=1)
    dearer = [[*row[:3], str(1000 * float(row[3]))] for row in rows[:2000]]
    write_csv(tmp_path / "train.csv", [*dearer, *rows[2000:]])
    with Restored(folder) as run:
        assert run.evaluate(run.part()[1]).metrics == pytest.approx(told, abs=1e-12)


def test_without_test_data_the_valid_part_is_taken_and_without_both_it_says_so(tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG.replace("test =", "valid ="))
    with Restored(trained(config)) as run:
        assert run.part()[0] == "valid"
    config.write_text(CONFIG.replace('test = "test.csv"', ""), encoding="utf-8")
    with Restored(trained(config)) as run, pytest.raises(ConfigError, match="neither test nor valid data"):
        run.part()


def test_test_files_are_enough_where_the_training_files_are_gone(tmp_path: Path) -> None:
    folder = trained(write_data(tmp_path))
    (tmp_path / "train.csv").unlink()
    with Restored(folder) as run:
        assert run.evaluate(run.part()[1]).rows == 1000


def test_rows_are_counted_as_they_are_evaluated(finished: Path) -> None:
    seen: list[int] = []
    with Restored(finished) as run:
        run.evaluate(run.part()[1], watch=seen.append)
    assert seen[-1] == 1000
    assert seen == sorted(seen)


def test_a_run_whose_tables_lie_in_shared_memory_is_opened_beside_it(tmp_path: Path) -> None:
    text = CONFIG.replace("dim = 1", f'dim = 1\nsegment = {{ run = "r", directory = "{tmp_path}" }}')
    config = load_config(write_data(tmp_path, text), [f"run.folder={tmp_path / 'runs'}"])
    with Run(config) as run:
        for _ in run:
            pass
        with Restored(run.folder) as beside:  # the run still holds its segment
            assert beside.evaluate(beside.part()[1]).metrics["auc"] == pytest.approx(run.summary["test_auc"])


def test_a_run_with_rows_on_disk_is_opened_beside_it_and_where_its_disk_is_gone(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    text = CONFIG.replace("dim = 1", f'dim = 1\ncapacity = 300\ndisk = "4MB"\npath = "{disk}"')
    config = load_config(write_data(tmp_path, text), [f"run.folder={tmp_path / 'runs'}"])
    with Run(config) as run:
        for _ in run:
            pass
        held = [path.name for path in disk.iterdir()]
        with Restored(run.folder) as one, Restored(run.folder) as other:  # the run still holds its file
            for beside in (one, other):
                assert beside.evaluate(beside.part()[1]).metrics["auc"] == pytest.approx(run.summary["test_auc"])
        assert [path.name for path in disk.iterdir()] == held
    shutil.rmtree(disk)
    before = files_of(run.folder)
    with Restored(run.folder) as alone:
        assert alone.evaluate(alone.part()[1]).metrics["auc"] == pytest.approx(run.summary["test_auc"])
    assert not disk.exists()
    assert {*files_of(run.folder)} == {*before}


def test_one_file_at_a_time_is_predicted(finished: Path, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, clicks(5, seed=1)[0])
    with Restored(finished) as run, pytest.raises(InputError, match="names 2 files: rows are numbered"):
        run.unlabelled(str(tmp_path / "*.csv"))


def test_made_up_rows_are_in_no_file(tmp_path: Path) -> None:
    made_up = '[data]\nformat = "synthetic"\nrows = 500\ntest_rows = 300\nids = 1000\n[model]'
    config = write_data(tmp_path, made_up + CONFIG.split("[model]")[1])
    with Restored(trained(config)) as run:
        assert run.evaluate(run.part()[1]).rows == 300
        with pytest.raises(ConfigError, match="trained on synthetic rows, so it has no file format"):
            run.unlabelled(str(tmp_path / "test.csv"))
        with pytest.raises(ConfigError, match="synthetic rows"):
            run.source(str(tmp_path / "test.csv"))


def test_folders_that_are_no_runs_are_told(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no checkpoint in it"):
        Restored(tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(finished, damaged)
    (damaged / SCHEMA).write_text("{")
    with pytest.raises(InputError, match="cannot be read as a schema"):
        Restored(damaged)
    (damaged / SCHEMA).unlink()
    with pytest.raises(InputError, match="cannot be read as a schema"):
        Restored(damaged)


def test_the_newest_run_with_a_checkpoint_is_found(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no run with a checkpoint in .*train one with `hotrow train`"):
        find_run(None, tmp_path / "runs")
    old, new = tmp_path / "runs" / "a", tmp_path / "runs" / "b"
    for folder in (new, old):
        shutil.copytree(finished, folder)
    (tmp_path / "runs" / "later").mkdir()  # no checkpoint
    (tmp_path / "runs" / "a file").write_text("")
    os.utime(new / CHECKPOINT, (2e9, 2e9))
    assert find_run(None, tmp_path / "runs") == new
    os.utime(old / CHECKPOINT, (3e9, 3e9))
    assert find_run(None, tmp_path / "runs") == old


def test_a_run_is_named_by_its_path_or_by_its_name(finished: Path) -> None:
    assert find_run(finished, Path("nowhere")) == finished
    assert find_run(Path(finished.name), finished.parent) == finished
    assert find_run(Path("other"), finished.parent) == Path("other")  # told when it is opened


def test_a_save_that_was_cut_off_leaves_the_checkpoint_before(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(finished, folder)
    whole = next((folder / CHECKPOINT).iterdir())
    shutil.copytree(whole, folder / CHECKPOINT / "000099")
    (folder / CHECKPOINT / "000099" / "manifest.json").unlink()
    assert has_checkpoint(folder)
    with Restored(folder) as run:
        assert run.trainer.samples == 6000


def test_a_run_whose_trainers_cached_rows_is_opened_without_a_cache(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cached"
    shutil.copytree(finished, folder)
    config = folder / "config.toml"
    text = config.read_text()
    assert "[tables.default]\n" in text
    config.write_text(text.replace("[tables.default]\n", "[tables.default]\ncache = { capacity = 10 }\n"))
    found = []
    for each in (finished, folder):
        with Restored(each) as run:
            found.append(run.evaluate(run.part()[1]).metrics)
    assert found[0] == found[1]
