"""Fig. 7 of the ASGD paper at a size of seconds: periods in samples, rivals that start alike, honest verdicts."""

import json
from typing import Any

import pytest
import torch

from hotrow.optim.dense import SwapOptimizer
from hotrow.optim.sparse import Adagrad, DecayedAdagrad, Swap
from hotrow.reproduce import asgd_figure_7 as figure_7
from hotrow.reproduce.asgd_figure_7 import Figure7Size

TINY = Figure7Size(days=2, day_samples=1024, batch=64, test_rows=1024, ids=60)


def test_a_period_is_the_papers_part_of_a_day() -> None:
    rows = figure_7.hypers(Figure7Size(day_samples=6000))["swap"].rows
    assert isinstance(rows, Adagrad)
    assert rows.swap == Swap(period=7000, decay=0.8)


def test_the_rival_remembers_a_twelfth_of_a_day() -> None:
    rows = figure_7.hypers(Figure7Size(day_samples=12_000, batch=10))["decayed"].rows
    assert isinstance(rows, DecayedAdagrad)
    assert 1 / (1 - rows.rate) == pytest.approx(100)  # steps, of 1200 a day


def test_lambda_as_printed_starts_with_steps_as_long_as_adagrads() -> None:
    hyper = figure_7.hypers(TINY)["decayed as printed"]
    assert isinstance(hyper.rows, DecayedAdagrad)
    gradient = 0.37
    step = hyper.rows.lr * gradient / ((1 - hyper.rows.rate) * gradient**2) ** 0.5
    assert step == pytest.approx(figure_7.ROWS_LR)
    for name in ("adagrad", "decayed as printed"):
        weight = torch.nn.Parameter(torch.zeros(1))
        weight.grad = torch.tensor([gradient])
        figure_7.hypers(TINY)[name].optimizer([weight]).step()
        assert float(weight.detach()) == pytest.approx(-figure_7.DENSE_LR, rel=1e-4), name


def test_dense_parameters_forget_as_the_rows_do() -> None:
    for name, hyper in figure_7.hypers(TINY).items():
        made = hyper.optimizer([torch.nn.Parameter(torch.zeros(1))])
        assert isinstance(made, SwapOptimizer) == name.startswith("swap")
        if isinstance(made, SwapOptimizer):
            assert isinstance(hyper.rows, Adagrad)
            assert made.swap == hyper.rows.swap


def test_swap_is_adagrad_until_the_first_period_ends_and_goes_on_over_the_night() -> None:
    plain = figure_7.trained(TINY, figure_7.hypers(TINY)["adagrad"], 0.2, seed=1)
    swapped = figure_7.trained(TINY, figure_7.swapped(Swap(period=TINY.day_samples + 64, decay=0.01)), 0.2, seed=1)
    assert swapped[0] == plain[0]  # a period is longer than the first day
    assert swapped[1] != plain[1]


def test_swap_without_decay_is_adagrad() -> None:
    plain = figure_7.trained(TINY, figure_7.hypers(TINY)["adagrad"], 0.2, seed=2)
    assert figure_7.trained(TINY, figure_7.swapped(Swap(period=100, decay=1.0)), 0.2, seed=2) == plain


def test_differences_are_of_the_second_half_of_the_days_and_paired_by_seed() -> None:
    adagrad = {1: [0.1, 0.2, 0.70, 0.72], 2: [0.9, 0.8, 0.60, 0.62]}
    better = {1: [0.0, 0.0, 0.71, 0.73], 2: [0.0, 0.0, 0.63, 0.65]}
    found = figure_7.compared({"adagrad": adagrad, "decayed": adagrad, "swap": better})["swap"]
    assert found["late_mean"] == pytest.approx((0.72 + 0.64) / 2)
    assert found["late_minus_adagrad"]["mean"] == pytest.approx((0.01 + 0.03) / 2)
    assert found["late_minus_adagrad"]["half_width"] == pytest.approx(12.706 * 0.01)  # two pairs, 0.01 from their mean
    assert [day["mean"] for day in found["minus_adagrad_by_day"]] == pytest.approx([-0.5, -0.5, 0.02, 0.02])


def verdicts(swap: float, rival: float, printed: float) -> list[bool]:
    def gap(mean: float) -> dict[str, Any]:
        return {"mean": mean, "half_width": 0.001, "pairs": 5}

    optimizers = {
        "swap": {"late_minus_adagrad": gap(swap), "late_minus_decayed": gap(rival)},
        "decayed as printed": {"late_minus_adagrad": gap(printed)},
    }
    return [each["holds"] for each in figure_7._promises({"drift": {"optimizers": optimizers}})]


def test_a_verdict_takes_the_whole_interval() -> None:
    assert verdicts(0.0011, 0.0011, 0.0009) == [True, True, True]
    assert verdicts(0.0009, 0.0009, 0.0011) == [False, False, False]


def test_a_result_is_plain_json_and_reads_as_a_table() -> None:
    result = figure_7.run(seeds=(1, 2), size=TINY, tell=lambda text: None)
    assert json.loads(json.dumps(result)) == result
    for drift in figure_7.DRIFTS:
        assert list(result[drift]["optimizers"]) == list(figure_7.hypers(TINY))
        assert all(len(each["mean_by_day"]) == TINY.days for each in result[drift]["optimizers"].values())
    text = "\n".join(figure_7.lines(result))
    assert "no drift" in text
    assert all(each["found"] in text for each in result["promises"])
