"""A simulation: the modes run as the cluster alone would run them, whatever is told on the way."""

from pathlib import Path
from statistics import pstdev

import pytest

from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.errors import ConfigError
from hotrow.modes import GBA, Async, Sync
from hotrow.run.build import trainer_of
from hotrow.run.config import RunConfig
from hotrow.sim import CountingWork, SimCluster
from hotrow.sim.study.outcome import STEPS_IN_A_STRETCH, setting_of, title_of
from hotrow.sim.study.study import PIECES, ModeProgress, Simulation
from hotrow.switching import Auto
from simulations import TRAINED, UNEVEN, config, outcomes


def test_each_mode_comes_to_what_the_cluster_alone_comes_to() -> None:
    made = config(run={"dense_bytes": 100, "row_bytes": 4}, cluster={"network": {"bandwidth": 1000}})
    for label, outcome in outcomes(made).items():
        mode = made.modes[label].mode
        assert not isinstance(mode, Auto)
        work = CountingWork(dense_bytes=100, row_bytes_per_sample=4)
        alone = SimCluster(mode, made.cluster_of(label), data=3_000, work=work, seed=0).run()
        assert outcome.result.document() == alone.document()
        assert outcome.result.finished


def test_the_slowest_worker_is_what_sync_waits_for_and_gba_does_not() -> None:
    found = outcomes(config())
    assert found["sync"].result.qps == pytest.approx(40 / 3, rel=1e-9)  # a step takes the three seconds of worker 0
    assert found["gba"].result.qps == pytest.approx(10 * (3 + 1 / 3), rel=0.03)  # but for the start and the end
    assert found["sync"].idle_share == pytest.approx(1 - (3 + 3 * 1) / (4 * 3), rel=1e-9)
    assert found["gba"].idle_share == pytest.approx(0, abs=0.02)
    assert found["sync"].samples_per_step == found["gba"].samples_per_step == 40


def test_the_speed_of_a_mode_makes_its_workers_faster() -> None:
    found = outcomes(config(modes={"fast": {"name": "sync", "speed": 4.0}}), "sync", "fast")
    assert found["fast"].result.qps == pytest.approx(4 * found["sync"].result.qps, rel=1e-9)


def test_progress_is_told_piece_by_piece_up_to_the_end() -> None:
    reports = [each for each in Simulation(config(), ["gba"]) if isinstance(each, ModeProgress)]
    assert PIECES // 4 <= len(reports) <= PIECES + 1  # a piece is 15 samples and a step 40
    assert [each.samples for each in reports] == sorted(each.samples for each in reports)
    assert (reports[-1].samples, reports[-1].samples_total, reports[-1].place) == (3_000, 3_000, 1)


def test_only_the_modes_that_are_asked_for_run_each_once() -> None:
    assert list(outcomes(config(), "gba", "gba")) == ["gba"]
    with pytest.raises(ConfigError, match="mode 'async': the file has no such label; it has sync, gba"):
        Simulation(config(), ["async"])


def test_virtual_seconds_end_a_mode_where_it_is() -> None:
    simulation = Simulation(config(run={"samples": None, "seconds": 31.0}), ["sync"])
    times = [each.seconds for each in simulation if isinstance(each, ModeProgress)]
    assert times == sorted(set(times))
    (found,) = simulation.outcomes
    assert (found.result.seconds, found.result.finished) == (31.0, False)
    assert found.result.samples_applied == 40 * 10  # ten steps of three seconds, and one that is not applied


def test_switches_come_when_they_are_due_by_time_and_by_samples() -> None:
    switches = [{"mode": "gba", "at_samples": 400}, {"mode": "async", "at_s": 90.0}]
    made = config(modes={"sync": {"switches": switches}, "gba": {"local_batch": 20, "workers": 2}})
    (found,) = outcomes(made, "sync").values()
    first, second, third = found.began
    assert (first.title, first.time_s, first.step) == ("sync", 0.0, 0)
    assert (second.title, second.workers, second.local_batch) == ("gba, tolerance 4", 2, 20)
    assert (second.time_s, second.step) == (33.0, 11)  # ten steps of three seconds, and the next was under way
    assert third.title == "async"
    assert 90.0 <= third.time_s <= 96.0  # the longest batch is drained first
    assert (found.switches, found.switches_left) == (2, 0)
    assert found.result.samples_applied == 3_000


def test_switches_that_the_end_forestalls_are_told() -> None:
    made = config(modes={"sync": {"switches": [{"mode": "gba", "at_samples": 10**6}]}})
    found = outcomes(made, "sync")["sync"]
    assert (found.switches, found.switches_left) == (0, 1)
    assert found.troubles == ["1 of its switches were not made: the run ended before"]


def test_a_cluster_without_a_living_worker_ends_and_says_so() -> None:
    crashes = [{"worker": worker, "at_s": 0.5} for worker in range(4)]
    found = outcomes(config(cluster={"faults": {"crashes": crashes}}), "sync")["sync"]
    assert not found.result.finished
    assert found.result.statistics.dropped == {"lost": 4}
    assert found.troubles == ["not one step was made"]


def test_remarks_of_the_modes_are_kept() -> None:
    found = outcomes(config(modes={"async": {}, "gba": {"workers": 2}}))
    assert found["async"].troubles[0].startswith("async applies 10 samples a step, the global batch is 40")
    assert found["gba"].troubles[0].startswith("gba has 2 workers for the 4 local batches")


def test_auto_begins_in_sync_and_its_decisions_are_told_with_their_reasons() -> None:
    found = outcomes(config(run={"samples": 12_000}, modes={"auto": {"minimum_stay": 5}}), "auto")["auto"]
    assert [each.title for each in found.began] == ["sync", "gba, tolerance 4"]
    (told,) = found.decisions
    assert (told.mode, told.switch) == ("gba", True)
    assert "the slowest worker takes 3.0 times the median" in told.sentence
    assert found.stays > 10
    assert found.document()["decisions"][0]["sentence"] == told.sentence


def test_advice_changes_nothing() -> None:
    found = outcomes(config(run={"samples": 12_000}, modes={"auto": {"minimum_stay": 5, "advise": True}}), "auto")
    assert [each.title for each in found["auto"].began] == ["sync"]
    assert found["auto"].decisions
    assert not any(each.switch for each in found["auto"].decisions)


def test_rates_are_of_stretches_that_hold_enough_steps_and_their_spread_is_theirs() -> None:
    found = outcomes(config())["sync"]
    steps_in_one = found.result.steps / len(found.rates)
    assert STEPS_IN_A_STRETCH <= steps_in_one <= 3 * STEPS_IN_A_STRETCH
    assert sum(rate for _, rate in found.rates) / len(found.rates) == pytest.approx(found.result.qps, rel=0.05)
    assert found.qps_spread == pytest.approx(pstdev(rate for _, rate in found.rates))
    assert outcomes(config(run={"samples": 80}))["sync"].qps_spread is None  # two steps show no spread


def test_titles_name_the_number_that_makes_a_mode_what_it_is() -> None:
    assert (title_of(Sync()), title_of(GBA(tolerance=7))) == ("sync", "gba, tolerance 7")
    assert (setting_of(Async()), setting_of(Auto(tolerance=2))) == (None, "tolerance 2")


def test_trained_in_sync_a_model_is_as_good_as_one_worker_makes_it() -> None:
    """The trainer is the oracle: one worker with the global batch, on the same rows and first weights."""
    (found,) = outcomes(config(TRAINED)).values()
    run = RunConfig(
        data=TRAINED["data"],
        model=TRAINED["model"],
        tables={"default": {"dim": 5, "optimizer": {"name": "sgd", "lr": 0.2}}},
        dense={"optimizer": {"name": "sgd", "lr": 0.1}},
        run={"global_batch": 64, "seed": 5, "autocast": "off", "threads": 1},
    )
    rows = SyntheticConfig(**TRAINED["data"])
    trainer = trainer_of(run, SyntheticSource(rows).schema)
    for _ in trainer.fit(SyntheticSource(rows)):
        pass
    expected = trainer.evaluate(SyntheticSource(rows, "test")).metrics
    assert found.metrics is not None
    assert found.metrics["auc"] == pytest.approx(expected["auc"], abs=1e-5)
    assert found.metrics["logloss"] == pytest.approx(expected["logloss"], abs=1e-6)
    assert found.rows == {"default": len(trainer.tables.tiers["default"])}
    assert found.result.samples_applied == 960
    trainer.tables.close()


def test_every_mode_trains_the_same_rows_from_the_same_start() -> None:
    twins = config(TRAINED, modes={"again": {"name": "sync"}, "gba": {}})
    found = outcomes(twins)
    assert found["sync"].metrics == found["again"].metrics
    assert found["gba"].metrics != found["sync"].metrics
    assert found["gba"].ids is not None
    assert found["gba"].ids.total > 0
    assert found["gba"].document()["ids"]["total"] == found["gba"].ids.total
    for outcome in found.values():
        assert outcome.ids is outcome.result.statistics.ids, "the rows tell the cluster how late they are"
    assert found["sync"].ids is not None
    assert set(found["sync"].ids.counts) == {0}


def test_samples_cut_the_data_and_hyper_parameters_are_the_modes_own() -> None:
    slow = {"dense": {"optimizer": {"name": "sgd", "lr": 1e-6}}, "rows": {"name": "sgd", "lr": 1e-6}}
    made = config(
        TRAINED,
        run={"samples": 200},
        hyper={"slow": slow},
        modes={"sync": {"hyper": "one"}, "other": {"name": "sync", "hyper": "slow"}},
    )
    found = outcomes(made)
    assert found["sync"].result.samples_applied == 200
    assert found["sync"].metrics != found["other"].metrics


def test_days_of_made_up_clicks_are_one_stream_that_is_tested_on_its_last_day() -> None:
    (found,) = outcomes(config(TRAINED, data={"days": 3, "drift": 0.1})).values()
    assert found.result.samples_applied == 960
    assert found.metrics is not None


def test_without_test_rows_there_are_no_metrics() -> None:
    (found,) = outcomes(config(TRAINED, data={"test_rows": 0})).values()
    assert found.metrics is None


def test_data_that_are_tested_day_by_day_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("y,u,t\n1,a,2024-01-01\n0,b,2024-01-02\n")
    data = {"train": str(path), "label": "y", "ids": ["u"], "time": "t", "split": {"by": "days", "last": 1}}
    with pytest.raises(ConfigError, match="a simulation tests once, at its end: give test files"):
        Simulation(config({**TRAINED, "data": data}))


@pytest.mark.parametrize("document", [UNEVEN, TRAINED], ids=["count", "train"])
def test_the_same_file_gives_the_same_figures(document: dict[str, object]) -> None:
    first, second = ({label: each.document() for label, each in outcomes(config(document)).items()} for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("movement", "too_late"), [(None, 3), (1e-6, 4)])
def test_batches_are_counted_by_what_their_tensors_weighed(movement: float | None, too_late: int) -> None:
    """A tensor that hardly moves has half the staleness: of 3 steps 1.5 are left, and of 4 a little more than 2."""
    late = {"decay": {"name": "cutoff", "tolerance": 2}, "groups": "dense", "movement": movement}
    trained = config(TRAINED, cluster={"workers": 6}, modes={"async": {"staleness": late}})
    found = outcomes(trained)["async"].result.statistics
    right = sum(count for age, count in found.data.counts.items() if age >= too_late)
    assert found.zero_weight == found.decayed == right
    assert found.data.counts[3] > 0


def test_a_loss_is_the_one_that_a_run_of_the_same_file_would_train_by() -> None:
    (plain,) = outcomes(config(TRAINED)).values()
    (squared,) = outcomes(config(TRAINED, model={"loss": "squared"})).values()
    assert plain.metrics is not None
    assert squared.metrics is not None
    assert "auc" in plain.metrics
    assert "rmse" in squared.metrics
    assert "auc" not in squared.metrics
    assert 0 < (squared.metrics["rmse"] or 0) < 1
