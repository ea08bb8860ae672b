"""How fast workers are: distributions, stragglers, the load of a day; every draw belongs to what it is drawn for."""

import numpy as np
import pytest

from hotrow.errors import ConfigError
from hotrow.sim.pace import BLOCK, Pace
from hotrow.sim.speeds import (
    BUSY_DAY,
    HOUR_S,
    AnySpread,
    ConstantSpeed,
    Exponential,
    Load,
    LogNormal,
    NormalRate,
    Speeds,
    Stragglers,
)


def batch_factors(spread: AnySpread, count: int = 20_000, seed: int = 3) -> np.ndarray:
    machine = Pace(Speeds(batch_s=1.0, sample_s=0.0, batches=spread), seed).machine(0)
    return np.array([machine.seconds(iteration, 0.0, 1) for iteration in range(count)])


def test_a_batch_takes_its_own_time_and_that_of_its_samples() -> None:
    machine = Pace(Speeds(batch_s=0.5, sample_s=0.25), seed=0).machine(7)
    assert machine.seconds(0, 0.0, 10) == 3.0
    assert machine.seconds(99, 1e6, 2) == 1.0


def test_spreads_have_the_moments_they_are_named_for() -> None:
    log_normal = batch_factors(LogNormal(sigma=0.5))
    assert log_normal.mean() == pytest.approx(1.0, abs=0.02)
    assert np.log(log_normal).std() == pytest.approx(0.5, abs=0.02)
    rates = 1 / batch_factors(NormalRate(spread=0.2))
    assert (rates.mean(), rates.std()) == (pytest.approx(1.0, abs=0.01), pytest.approx(0.2, abs=0.01))
    exponential = batch_factors(Exponential())
    assert (exponential.mean(), exponential.std()) == (pytest.approx(1.0, abs=0.03), pytest.approx(1.0, abs=0.05))
    assert set(batch_factors(ConstantSpeed(), 100)) == {1.0}


def test_normal_rates_stop_at_the_slowest() -> None:
    times = batch_factors(NormalRate(spread=1.0, slowest=0.25))
    assert times.max() == 4.0
    assert (times == 4.0).mean() == pytest.approx(0.227, abs=0.02)  # of a normal distribution, below -0.75


def test_a_draw_depends_on_seed_worker_and_iteration_and_not_on_what_was_asked_before() -> None:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, machines=LogNormal(sigma=0.3), batches=LogNormal(sigma=0.3))
    asked = [(worker, iteration) for worker in range(5) for iteration in (0, 1, BLOCK - 1, BLOCK, 5 * BLOCK)]

    def drawn(seed: int, order: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
        machines = [Pace(speeds, seed).machine(worker) for worker in range(5)]
        return {(worker, iteration): machines[worker].seconds(iteration, 0.0, 1) for worker, iteration in order}

    forward = drawn(1, asked)
    assert forward == drawn(1, asked[::-1])
    assert len(set(forward.values())) == len(asked)
    assert forward.keys() == drawn(2, asked).keys()
    assert not set(forward.values()) & set(drawn(2, asked).values())


def test_named_stragglers_are_slow_from_their_first_second_up_to_their_last() -> None:
    stragglers = Stragglers(workers=(2,), factor=3.0, from_s=10.0, until_s=20.0)
    pace = Pace(Speeds(batch_s=1.0, sample_s=0.0, stragglers=(stragglers,)), seed=0)
    slow, other = pace.machine(2), pace.machine(1)
    assert [slow.seconds(0, time_s, 1) for time_s in (9.999, 10.0, 19.999, 20.0)] == [1.0, 3.0, 3.0, 1.0]
    assert other.seconds(0, 15.0, 1) == 1.0


def test_a_share_of_the_workers_straggles_and_others_do_after_a_while() -> None:
    stragglers = Stragglers(share=0.3, factor=2.0, every_s=60.0)
    pace = Pace(Speeds(batch_s=1.0, sample_s=0.0, stragglers=(stragglers,)), seed=5)
    machines = [pace.machine(worker) for worker in range(400)]
    slow = np.array([[machine.seconds(0, 60.0 * n + 1, 1) == 2.0 for machine in machines] for n in range(5)])
    assert slow.mean() == pytest.approx(0.3, abs=0.03)
    again = [machine.seconds(9, 59.0, 1) == 2.0 for machine in machines]
    assert list(slow[0]) == again
    assert (slow[0] & slow[1]).mean() == pytest.approx(0.09, abs=0.04)


def test_several_stragglers_add_up_as_factors() -> None:
    both = (Stragglers(workers=(0,), factor=2.0), Stragglers(workers=(0, 1), factor=3.0))
    pace = Pace(Speeds(batch_s=1.0, sample_s=0.0, stragglers=both), seed=0)
    assert [pace.machine(worker).seconds(0, 0.0, 1) for worker in range(3)] == [6.0, 3.0, 1.0]


def test_the_load_is_a_line_between_hours_and_comes_again_every_day() -> None:
    load = Load()
    assert [load.use(hour * HOUR_S) for hour in range(24)] == list(BUSY_DAY)
    assert load.use(2.5 * HOUR_S) == pytest.approx((BUSY_DAY[2] + BUSY_DAY[3]) / 2)
    assert load.use(23.5 * HOUR_S) == pytest.approx((BUSY_DAY[23] + BUSY_DAY[0]) / 2)
    assert load.use(50.25 * HOUR_S) == pytest.approx(load.use(2.25 * HOUR_S))
    assert Load(first_hour=7.5).use(0.0) == pytest.approx(load.use(7.5 * HOUR_S))


def test_there_is_no_pressure_while_there_is_room() -> None:
    load = Load(hours=tuple(hour / 24 for hour in range(24)), idle=0.5)
    assert load.pressure(6 * HOUR_S) == 0.0
    assert load.pressure(12 * HOUR_S) == 0.0
    assert load.pressure(18 * HOUR_S) == pytest.approx(0.5)
    assert Load(hours=(1.0,) * 24).pressure(0.0) == 1.0


def test_stragglers_with_load_come_with_the_pressure() -> None:
    load = Load(hours=(0.0,) * 12 + (1.0,) * 12, idle=0.5)
    stragglers = Stragglers(share=0.5, factor=9.0, every_s=60.0, with_load=True)
    pace = Pace(Speeds(batch_s=1.0, sample_s=0.0, stragglers=(stragglers,), load=load), seed=1)

    def slow(hour: float) -> float:
        return float(np.mean([pace.machine(worker).seconds(0, hour * HOUR_S, 1) > 1 for worker in range(500)]))

    assert slow(5) == 0.0
    assert slow(18) == pytest.approx(0.5, abs=0.06)
    assert slow(11.75) == pytest.approx(0.25, abs=0.06)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Stragglers(), "Stragglers.workers=None: give either share, or the numbers"),
        (lambda: Stragglers(share=0.1, workers=(1,)), "give either share, or the numbers"),
        (lambda: Stragglers(share=0.1, from_s=5, until_s=5), "Stragglers.until_s=5: is not after from_s=5"),
        (lambda: Stragglers(workers=(1,), every_s=5), "Stragglers.every_s=5: nothing is drawn where workers lists the"),
        (lambda: Speeds(batch_s=0, sample_s=0), "Speeds.sample_s=0: a batch would take no time at all"),
        (lambda: Speeds(load=Load()), "it has no effect: give stragglers with_load=true, or leave load out"),
        (lambda: Speeds(stragglers=(Stragglers(share=0.1, with_load=True),)), "Speeds.load=None: stragglers with_load"),
        (lambda: Load(hours=(0.5,) * 23), "Load.hours"),
        (lambda: LogNormal(sigma=0), "LogNormal.sigma=0: Input should be greater than 0"),
        (lambda: Speeds(machines={"name": "normal"}), "Speeds.machines={'name': 'normal'}: there is none of this name"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_told_in_a_sentence(make: object, told: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError) as error:
        make()
    assert told in str(error.value)
