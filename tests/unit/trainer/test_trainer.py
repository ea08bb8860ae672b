"""What a run tells, when it stops, and that a resumed run is the uninterrupted one."""

from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.schema import Schema
from hotrow.data.splits import RowRange
from hotrow.modes import Sync
from hotrow.nn.inputs import Inputs
from hotrow.trainer import (
    EarlyStopping,
    EpochEnded,
    Evaluated,
    Progress,
    Report,
    Schedule,
    Trainer,
    TrainingEnded,
)
from hotrow.trainer.trainer import Trainer as _Trainer
from unit.trainer.conftest import SCHEMA, Made, Net, make_trainer


def weights(trainer: Trainer) -> list[np.ndarray]:
    rows = {int(k): v for chunk in trainer.tables.tiers["default"].export()
            for k, v in zip(chunk.keys, np.hstack([chunk.values, chunk.state]), strict=True)}  # fmt: skip
    return [*(p.detach().numpy() for p in trainer.model.parameters()), *(rows[key] for key in sorted(rows))]


def same(left: Trainer, right: Trainer) -> bool:
    ours, theirs = weights(left), weights(right)
    return len(ours) == len(theirs) and all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def of_kind(reports: list[Report], kind: type) -> list[Report]:
    return [report for report in reports if isinstance(report, kind)]


def test_it_learns_and_tells_so(trainer: Trainer) -> None:
    *_, end = reports = list(trainer.fit(Made(4000), valid=Made(1000, seed=1), epochs=3))
    assert isinstance(end, TrainingEnded)
    assert (end.samples, end.step, end.stopped) == (12_000, 189, "epochs done")  # 63 batches an epoch, the last short
    losses = [report.loss for report in reports if isinstance(report, Progress)]
    assert losses[-1] < losses[0]
    valid = [report for report in reports if isinstance(report, Evaluated)]
    assert [(report.epoch, report.rows, report.split) for report in valid] == [(e, 1000, "valid") for e in range(3)]
    assert (valid[-1].metrics["auc"] or 0) > 0.8
    assert [report.samples for report in reports if isinstance(report, EpochEnded)] == [4000, 8000, 12_000]
    assert trainer.samples == 12_000


def test_nothing_happens_before_reports_are_asked_for(trainer: Trainer) -> None:
    trainer.fit(Made(1000))
    assert trainer.step == 0


def test_a_report_comes_for_every_step_where_asked(trainer: Trainer) -> None:
    eager = make_trainer(report_every_s=0)
    progress = [report for report in eager.fit(Made(640)) if isinstance(report, Progress)]
    assert [report.step for report in progress] == list(range(1, 11))
    quiet = make_trainer(report_every_s=3600)
    (only,) = [report for report in quiet.fit(Made(640)) if isinstance(report, Progress)]
    assert only.loss == pytest.approx(np.mean([report.loss for report in progress]), abs=1e-7)


def test_the_auc_of_progress_is_that_of_predictions_before_each_update() -> None:
    quiet, twin = make_trainer(report_every_s=3600), make_trainer()
    (told,) = [report for report in quiet.fit(Made(640)) if isinstance(report, Progress)]
    labels, odds = [], []
    for _, batch in Loader(Made(640), 64):
        odds.append(np.log(p := twin.predict_batch(batch).astype(np.float64)) - np.log1p(-p))
        labels.append(batch.labels)
        list(twin.fit([batch]))
    assert told.auc == pytest.approx(hr_auc(np.concatenate(labels)[:, 0], np.concatenate(odds)), abs=1e-4)  # type: ignore[arg-type]


def hr_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    wins = [(p > n) + 0.5 * (p == n) for p in scores[labels > 0.5] for n in scores[labels < 0.5]]
    return float(np.mean(wins))


def test_progressive_evaluation_predicts_without_dropout_and_then_trains() -> None:
    noisy = make_trainer(dropout=0.5)
    (found,) = of_kind(list(noisy.fit(Made(1280), progressive=True)), Evaluated)
    assert isinstance(found, Evaluated)
    assert (found.split, found.rows) == ("progressive", 1280)
    twin = make_trainer(dropout=0.5)
    scores = []
    for _, batch in Loader(Made(1280), 64):
        scores.append(twin.evaluate([batch]))
        list(twin.fit([batch]))
    losses = [report.metrics["logloss"] for report in scores]
    assert found.metrics["logloss"] == pytest.approx(np.mean(losses), abs=1e-6)  # type: ignore[arg-type]


def test_evaluation_changes_nothing(trainer: Trainer) -> None:
    list(trainer.fit(Made(1000)))
    before = [array.copy() for array in weights(trainer)]
    first = trainer.evaluate(Made(500, seed=3)).metrics
    assert trainer.evaluate(Made(500, seed=3)).metrics == first
    assert all((a == b).all() for a, b in zip(before, weights(trainer), strict=True))


def test_predictions_are_probabilities_in_the_order_of_the_rows(trainer: Trainer) -> None:
    list(trainer.fit(Made(4000)))
    source = Made(200, seed=5)
    parts = list(trainer.predict(source))
    assert [len(part) for part in parts] == [64, 64, 64, 8]
    scores = np.concatenate(parts)
    assert ((scores > 0) & (scores < 1)).all()
    assert hr_auc(source.table["y"].to_numpy(), scores) > 0.75


def test_early_stopping_goes_back_to_the_best(tmp_path: Path) -> None:
    trainer = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.3))  # so large that it soon gets worse
    stop = EarlyStopping(patience=2)
    fit = trainer.fit(Made(600), valid=Made(500, seed=1), epochs=50, early_stopping=stop, best=tmp_path / "best")
    *_, end = reports = list(fit)
    assert isinstance(end, TrainingEnded)
    values = [report.metrics["auc"] for report in reports if isinstance(report, Evaluated)]
    assert end.stopped == "early stopping"
    assert end.best is not None
    assert end.best.value == max(value for value in values if value is not None)
    assert len(values) == end.best.epoch + 3
    assert trainer.evaluate(Made(500, seed=1)).metrics["auc"] == end.best.value
    assert trainer.samples == 600 * len(values)


def test_a_resumed_run_goes_on_counting_its_patience(tmp_path: Path) -> None:
    stop = EarlyStopping(patience=2)
    how = {"valid": Made(500, seed=1), "epochs": 50, "early_stopping": stop, "best": tmp_path / "best"}
    whole = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.3))
    *_, end = list(whole.fit(Made(600), **how))  # type: ignore[arg-type]
    assert isinstance(end, TrainingEnded)
    assert end.best is not None
    cut = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.3))
    for report in cut.fit(Made(600), **how):  # type: ignore[arg-type]
        if isinstance(report, Progress) and report.epoch == end.best.epoch + 2:
            break  # the one validation without a gain is behind it
    cut.save(tmp_path / "c")
    again = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.3))
    *_, last = list(again.fit(Made(600), position=again.load(tmp_path / "c"), **how))  # type: ignore[arg-type]
    assert isinstance(last, TrainingEnded)
    assert (last.samples, last.stopped, last.best) == (end.samples, "early stopping", end.best)
    again.save(tmp_path / "c")
    once_more = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.3))
    *_, nothing = list(once_more.fit(Made(600), position=once_more.load(tmp_path / "c"), **how))  # type: ignore[arg-type]
    assert isinstance(nothing, TrainingEnded)
    assert (nothing.samples, nothing.stopped) == (end.samples, "early stopping")


def test_labels_beyond_zero_and_one_are_told(trainer: Trainer) -> None:
    source = Made(100)
    source.table = source.table.set_column(0, "y", [np.full(100, 5)])
    with pytest.raises(hr.InputError, match="a label is 5: must be from 0 to 1; at_least"):
        list(trainer.fit(source))


def test_early_stopping_without_valid_or_folder_is_refused(trainer: Trainer) -> None:
    with pytest.raises(hr.ConfigError, match="give `valid` to judge by and `best`"):
        next(trainer.fit(Made(100), early_stopping=EarlyStopping()))


def test_a_plateau_lowers_all_learning_rates() -> None:
    trainer = make_trainer(schedule=Schedule(plateau=0.5))
    values = [r.metrics["auc"] for r in trainer.fit(Made(640), valid=Made(300), epochs=9) if isinstance(r, Evaluated)]
    best, worse = -1.0, 0
    for value in values:
        assert value is not None
        worse += value <= best + 1e-6
        best = max(best, value)
    assert 0 < worse < 9
    assert trainer.lr_scale == 0.5**worse


def test_a_validation_of_one_class_decides_nothing() -> None:
    trainer = make_trainer(schedule=Schedule(plateau=0.5))
    one_class = Made(100)
    one_class.table = one_class.table.set_column(0, "y", [np.zeros(100, np.int64)])
    list(trainer.fit(Made(640), valid=one_class, epochs=3))
    assert trainer.lr_scale == 1


def test_the_schedule_reaches_both_sides() -> None:
    frozen = make_trainer(schedule=Schedule(decay="linear", over=1))
    list(frozen.fit(Made(64)))
    before = [array.copy() for array in weights(frozen)]
    list(frozen.fit(Made(64)))  # the rate is 0 now, so values stay; Adagrad's sums do not
    after = weights(frozen)
    assert (before[0] == after[0]).all()
    assert all((a[:4] == b[:4]).all() for a, b in zip(before[4:], after[4:], strict=False))


@pytest.mark.parametrize(("stop_at", "ahead"), [(1, 0), (10, 0), (63, 0), (70, 0), (125, 0), (10, 1), (63, 1), (70, 1)])
def test_a_resumed_run_is_the_uninterrupted_one(stop_at: int, ahead: Literal[0, 1], tmp_path: Path) -> None:
    settings = {"epochs": 2, "shuffle": 150, "seed": 3}
    whole = make_trainer(dropout=0.2, report_every_s=0)
    list(whole.fit(Made(4000), **settings))  # type: ignore[arg-type]
    first = make_trainer(dropout=0.2, report_every_s=0, mode=Sync(look_ahead=ahead))
    for report in first.fit(Made(4000), **settings):  # type: ignore[arg-type]
        if isinstance(report, Progress) and report.step == stop_at:
            break
    first.save(tmp_path / "c")
    second = make_trainer(dropout=0.2)
    list(second.fit(Made(300, seed=8)))  # what it was before must not matter
    position = second.load(tmp_path / "c")
    last_of_epoch = stop_at == 63
    assert second.step == stop_at + (0 if last_of_epoch else ahead)  # what was looked up is trained
    list(second.fit(Made(4000), position=position, **settings))  # type: ignore[arg-type]
    assert second.samples == whole.samples
    assert same(whole, second)


def test_most_samples_stops_in_time(trainer: Trainer) -> None:
    *_, end = trainer.fit(Made(4000), most_samples=130)
    assert isinstance(end, TrainingEnded)
    assert (end.samples, end.stopped) == (192, "enough samples")


def test_enough_samples_right_after_a_report_ends_too() -> None:
    *reports, end = make_trainer(report_every_s=0).fit(Made(4000), most_samples=128)
    assert isinstance(end, TrainingEnded)
    assert (end.samples, end.stopped) == (128, "enough samples")
    assert not of_kind(reports, EpochEnded)


def test_autocast_computes_in_bfloat16_and_trains_all_the_same() -> None:
    exact, short = make_trainer(autocast="off"), make_trainer(autocast="on")
    for trainer in (exact, short):
        list(trainer.fit(Made(2000)))
    ours, theirs = exact.evaluate(Made(1000, seed=1)).metrics, short.evaluate(Made(1000, seed=1)).metrics
    assert ours["logloss"] != theirs["logloss"]
    assert theirs["auc"] == pytest.approx(ours["auc"], abs=0.02)
    assert all(p.dtype == torch.float32 for p in short.model.parameters())


def test_callbacks_see_every_report_first() -> None:
    seen: list[Report] = []
    trainer = make_trainer(callbacks=[lambda owner, report: seen.append(report)])
    assert list(trainer.fit(Made(300))) == seen


def test_a_reader_that_stops_early_leaves_no_thread(trainer: Trainer) -> None:
    import threading

    before = threading.active_count()
    reports = trainer.fit(Made(100_000))
    next(reports)
    reports.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


class TwoLabels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(9, 2)

    def forward(self, x: Inputs) -> Tensor:
        out: Tensor = self.top(torch.cat([x.flat, x.numbers], 1))
        return out


def test_several_labels_have_metrics_each() -> None:
    schema = Schema(label=["y", "above"], numbers=["n"], ids=["a", "b"])
    torch.manual_seed(0)
    trainer = Trainer(TwoLabels(), hr.Table(dim=4), optimizer=lambda p: torch.optim.Adam(p, lr=0.02), global_batch=64)
    list(trainer.fit(Made(4000, schema=schema), epochs=3))
    found = trainer.evaluate(Made(1000, seed=1, schema=schema)).metrics
    assert (found["auc_2"] or 0) > 0.97  # the number itself, all but noise
    assert 0.75 < (found["auc"] or 0) < 0.95
    assert next(trainer.predict(Made(10, schema=schema))).shape == (10, 2)


class ThreeClasses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(9, 3)

    def forward(self, x: Inputs) -> Tensor:
        out: Tensor = self.top(torch.cat([x.flat, x.numbers], 1))
        return out

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, labels[:, 0].long())


def test_classes_have_an_accuracy_and_a_loss_of_the_models_own() -> None:
    def classes(batch: Batch) -> Batch:
        assert batch.labels is not None
        kind = (batch.numbers > -0.5).astype(np.float32) + (batch.numbers > 0.5)
        return Batch(batch.parts, batch.numbers, kind.astype(np.float32))

    made = [classes(batch) for _, batch in Loader(Made(4000), 64)]
    trainer = Trainer(ThreeClasses(), hr.Table(dim=4), optimizer=lambda p: torch.optim.Adam(p, lr=0.05))
    (told, *_) = [report for report in trainer.fit(made) if isinstance(report, Progress)]
    assert told.auc is None
    found = trainer.evaluate(made).metrics
    assert (found["accuracy"] or 0) > 0.8
    assert (found["logloss"] or 9) < 0.6


def test_outputs_that_do_not_fit_the_labels_are_told(trainer: Trainer) -> None:
    with pytest.raises(hr.InputError, match=r"the model gives \(64, 2\) and the labels are \(64, 1\)"):
        list(Trainer(TwoLabels(), hr.Table(dim=4), global_batch=64).fit(Made(100)))
    without = [Batch(b.parts, b.numbers) for _, b in Loader(Made(64), 64)]
    with pytest.raises(hr.InputError, match="labels are missing: a batch to train on"):
        list(trainer.fit(without))
    with_labels = [b for _, b in Loader(Made(64), 64)]
    for batches in (without, [*with_labels, *without]):
        with pytest.raises(hr.InputError, match="labels are missing: an evaluation"):
            trainer.evaluate(batches)


def test_settings_that_cannot_be_are_told() -> None:
    with pytest.raises(hr.ConfigError, match="model is a str"):
        Trainer("deepfm", hr.Table(dim=4))  # type: ignore[arg-type]
    with pytest.raises(hr.ConfigError, match="global_batch=0"):
        Trainer(Net(), hr.Table(dim=4), global_batch=0)
    with pytest.raises(hr.ConfigError, match="optimizer gives a list"):
        Trainer(Net(), hr.Table(dim=4), optimizer=lambda p: list(p))  # type: ignore[arg-type,return-value]


def broken(output: Tensor, labels: Tensor) -> Tensor:
    return output.mean() * float("nan")


def fit_and_save(trainer: Trainer, folder: Path) -> None:
    for _ in trainer.fit(Made(10 * 64)):
        trainer.save(folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_finite_ends_the_fit_and_is_not_saved(tmp_path: Path, workers: int) -> None:
    """Finite until the third step."""
    calls = count()

    def late(output: Tensor, labels: Tensor) -> Tensor:
        return output.mean() * (1.0 if next(calls) < 2 * workers else float("inf"))

    bad = make_trainer(loss=late, workers=workers, report_every_s=0)
    told = rf"^step 3: the loss of batch {2 if workers == 1 else '[45]'} of epoch 0 is -?inf: lower the"
    with pytest.raises(hr.InputError, match=told):
        fit_and_save(bad, tmp_path / "saved")
    with pytest.raises(hr.InputError, match=r"^step 3: .* so parameters may not be finite: load the last checkpoint$"):
        bad.save(tmp_path / "saved")
    assert bad.load(tmp_path / "saved") is not None
    assert bad.step == 2
    bad.save(tmp_path / "again")


def test_a_loss_that_is_not_finite_is_counted_where_the_run_goes_on() -> None:
    bad = make_trainer(loss=broken, not_finite="continue")
    *_, end = bad.fit(Made(128))
    assert isinstance(end, TrainingEnded)
    assert end.counts["losses_not_finite"] == 2
    assert end.counts["refused_gradients"] > 0


def test_an_empty_source_is_told(trainer: Trainer) -> None:
    with pytest.raises(hr.InputError, match="the training data hold no rows"):
        list(trainer.fit(RowRange(Made(10), 10, 10)))


def test_settings_of_reading_need_a_source(trainer: Trainer) -> None:
    batches = [batch for _, batch in Loader(Made(100), 50)]
    for how in ({"epochs": 3}, {"shuffle": 10}, {"seed": 1}):
        with pytest.raises(hr.ConfigError, match="is for a Source; batches and a Loader come as they are"):
            list(trainer.fit(batches, **how))  # type: ignore[arg-type]
    assert trainer.samples == 0


def test_a_metric_that_is_not_there_is_told(tmp_path: Path) -> None:
    trainer = make_trainer()
    stop = EarlyStopping(metric="grouped_auc")
    with pytest.raises(hr.ConfigError, match=r"early_stopping.metric='grouped_auc': the validation has no such metric"):
        list(trainer.fit(Made(200), valid=Made(100), early_stopping=stop, best=tmp_path / "b"))


def test_early_stopping_may_begin_at_a_resume(tmp_path: Path) -> None:
    first = make_trainer()
    list(first.fit(Made(640), valid=Made(100), epochs=2))
    first.save(tmp_path / "c")
    second = make_trainer()
    position = second.load(tmp_path / "c")
    stop = EarlyStopping(patience=1, least=0.9)
    how = {"valid": Made(100), "early_stopping": stop, "best": tmp_path / "b"}
    *reports, end = second.fit(Made(640), epochs=9, position=position, **how)  # type: ignore[arg-type]
    assert isinstance(end, TrainingEnded)
    assert end.stopped == "early stopping"
    assert [report.epoch for report in reports if isinstance(report, Evaluated)] == [2, 3]
    assert end.best is not None


def test_settings_of_the_dense_optimizer_may_change_at_a_resume(tmp_path: Path) -> None:
    first = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    list(first.fit(Made(64)))
    first.save(tmp_path / "c")
    second = make_trainer(optimizer=lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.5))
    second.load(tmp_path / "c")
    assert second.optimizer is not None
    assert second.optimizer.param_groups[0]["weight_decay"] == 0.5
    assert second.optimizer.state_dict()["state"][0]["step"] == 1


def test_a_model_without_parameters_trains_its_rows() -> None:
    class Sum(nn.Module):
        def forward(self, x: Inputs) -> Tensor:
            return x.rows.sum((1, 2))

    trainer = Trainer(Sum(), hr.Table(dim=1, optimizer=hr.Adagrad(lr=0.5)), global_batch=64)
    list(trainer.fit(Made(4000), epochs=2))
    assert (trainer.evaluate(Made(1000, seed=1)).metrics["auc"] or 0) > 0.75


def test_the_public_name_is_this_one() -> None:
    assert hr.Trainer is _Trainer
    assert SCHEMA.width == 1


def test_a_step_may_hold_more_batches_than_a_loader_holds_for_the_forgetful() -> None:
    trainer = make_trainer(global_batch=200, local_batch=1, mode="gba", workers=2)
    list(trainer.fit(Made(400)))
    assert trainer.position is not None
    assert (trainer.samples, trainer.position.samples, trainer.step) == (400, 400, 2)
    trainer.close()
