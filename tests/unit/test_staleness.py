"""Decay curves against their formulas in float64, and the settings that are refused."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hotrow.errors import ConfigError, InputError
from hotrow.staleness import AnyDecay, Cutoff, Inverse, Linear, Power, Staleness

DOCS = Path(__file__).parents[2] / "docs" / "staleness.md"

LATE = st.one_of(st.integers(0, 10**6), st.floats(0, 1e9))
SIZE = st.floats(1e-3, 1e6)
CURVES = st.one_of(
    st.builds(Cutoff, tolerance=st.integers(0, 100)),
    st.just(Inverse()),
    st.builds(Linear, reference=SIZE, present=SIZE),
    st.builds(Power, reference=SIZE, exponent=st.floats(0.1, 8), literal=st.booleans()),
)


def formula(decay: AnyDecay, tau: float) -> float:
    """The curves as DESIGN and the papers give them."""
    match decay:
        case Cutoff():
            return float(tau <= decay.tolerance)
        case Inverse():
            return 1 / tau if tau > 1 else 1.0
        case Linear():
            normal = tau * decay.reference / decay.present
            return 1 / normal if normal > 1 else 1.0
        case Power(literal=False):
            return 1.0 if tau <= decay.reference else math.exp(decay.exponent * math.log(decay.reference / tau))
        case Power():
            return 1.0 if tau <= max(decay.reference, 1) else math.exp(-decay.exponent * math.log(tau))


@given(CURVES, LATE)
def test_every_curve_is_its_formula(decay: AnyDecay, tau: float) -> None:
    assert decay.weight(tau) == pytest.approx(formula(decay, tau), rel=1e-12, abs=1e-300)


@given(CURVES, LATE, LATE)
def test_a_weight_lies_between_0_and_1_and_never_grows_with_staleness(decay: AnyDecay, a: float, b: float) -> None:
    earlier, later = decay.weight(min(a, b)), decay.weight(max(a, b))
    assert 0 <= later <= earlier <= 1
    assert decay.weight(0) == 1


def test_the_tolerance_is_inclusive() -> None:
    assert [Cutoff(tolerance=2).weight(tau) for tau in (0, 2, 3)] == [1, 1, 0]
    assert [Cutoff(tolerance=0).weight(tau) for tau in (0, 1)] == [1, 0]
    assert Cutoff().tolerance == 4


def test_power_is_untouched_up_to_its_reference_and_continuous_there() -> None:
    assert Power(reference=1000).weight(1000) == 1
    assert Power(reference=1000).weight(1001) == pytest.approx((1000 / 1001) ** 2)
    assert Power(reference=1000).weight(2000) == 0.25


def test_the_printed_power_falls_at_its_reference() -> None:
    assert Power(reference=1000, literal=True).weight(1000) == 1
    assert Power(reference=1000, literal=True).weight(1001) == pytest.approx(1 / 1001**2)


def test_a_reference_below_1_makes_no_weight_above_1() -> None:
    assert Power(reference=0.25, literal=True).weight(0.5) == 1
    assert Power(reference=0.25).weight(0.5) == 0.25


def test_staleness_beyond_all_measure_weighs_nothing_and_breaks_nothing() -> None:
    assert Power(reference=1, exponent=400).weight(10) == 0
    assert Power(reference=1, exponent=400, literal=True).weight(10) == 0
    assert Inverse().weight(math.inf) == 0


@pytest.mark.parametrize("tau", [-1, -1e-9, math.nan])
def test_staleness_below_0_is_refused(tau: float) -> None:
    for decay in (Cutoff(), Inverse(), Linear(reference=1, present=2), Power(reference=1)):
        with pytest.raises(InputError, match=r"tau=.*must be 0 or more"):
            decay.weight(tau)


def test_the_groups_say_which_gradients_are_weighed() -> None:
    weights = {
        groups: (policy.dense_weight(9), policy.row_weight(9))
        for groups in ("both", "dense", "embedding")
        for policy in [Staleness(decay={"name": "inverse"}, groups=groups)]
    }
    assert weights == {"both": (1 / 9, 1 / 9), "dense": (1 / 9, 1), "embedding": (1, 1 / 9)}


@given(st.integers(0, 10_000), st.floats(0, 1e6), st.floats(1e-6, 1e6))
def test_movement_scales_staleness_by_the_sigmoid_of_the_last_change(tau: int, change: float, weight: float) -> None:
    policy = Staleness(decay=Cutoff(), movement=weight)
    assert policy.moved(tau, change) == pytest.approx(tau * (1 / (1 + math.exp(-weight * change))), rel=1e-12)
    assert tau / 2 <= policy.moved(tau, change) <= tau


def test_a_tensor_at_rest_has_half_its_staleness_and_without_movement_all_of_it() -> None:
    assert Staleness(decay=Cutoff(), movement=3.0).moved(10, 0.0) == 5
    assert Staleness(decay=Cutoff(), movement=3.0).moved(10, math.inf) == 10
    assert Staleness(decay=Cutoff()).moved(10, math.nan) == 10


@pytest.mark.parametrize("change", [math.nan, -0.1])
def test_a_change_that_is_none_is_refused(change: float) -> None:
    with pytest.raises(InputError, match=r"change=.*must be 0 or more"):
        Staleness(decay=Cutoff(), movement=1.0).moved(3, change)


REFUSED = {
    "tolerance": (Cutoff, {"tolerance": -1}, r"Cutoff.tolerance=-1: .*greater than or equal to 0"),
    "tolerance, a float": (Cutoff, {"tolerance": 1.5}, r"Cutoff.tolerance=1.5: must be a whole number"),
    "reference": (Linear, {"reference": 0, "present": 1}, r"Linear.reference=0: .*greater than 0"),
    "present": (Linear, {"reference": 1, "present": 0}, r"Linear.present=0: .*greater than 0"),
    "present, infinite": (Linear, {"reference": 1, "present": math.inf}, r"Linear.present=inf: .*finite"),
    "reference, missing": (Power, {}, r"Power.reference is missing"),
    "exponent": (Power, {"reference": 1, "exponent": 0}, r"Power.exponent=0: .*greater than 0"),
    "decay": (Staleness, {"decay": {"name": "cut"}}, r"Staleness.decay=.*must be one of 'cutoff'"),
    "movement": (Staleness, {"decay": Inverse(), "movement": 0}, r"Staleness.movement=0: .*greater than 0"),
    "movement of rows": (
        Staleness,
        {"decay": Inverse(), "groups": "embedding", "movement": 1.0},
        r"Staleness.movement=1.0: .*groups='embedding' weighs none: leave it out",
    ),
    "literal by version": (
        Staleness,
        {"decay": Inverse(), "by": "version", "literal": True},
        r"Staleness.literal=True: .*by='version' has none: leave one of them out",
    ),
    "literal of dense": (
        Staleness,
        {"decay": Inverse(), "groups": "dense", "literal": True},
        r"Staleness.literal=True: .*groups='dense' weighs none",
    ),
}


@pytest.mark.parametrize(("spec", "settings", "told"), REFUSED.values(), ids=REFUSED)
def test_a_bad_setting_is_told_with_field_value_and_remedy(
    spec: type[Staleness], settings: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        spec(**settings)


@given(CURVES)
def test_a_policy_survives_a_config_file(decay: AnyDecay) -> None:
    policy = Staleness(decay=decay, groups="dense", movement=2.0)
    assert TypeAdapter(Staleness).validate_json(policy.model_dump_json()) == policy


def test_the_table_of_the_docs_is_what_the_curves_give() -> None:
    curves: dict[str, AnyDecay] = {
        "Cutoff(tolerance=4)": Cutoff(tolerance=4),
        "Inverse()": Inverse(),
        "Linear(reference=1000, present=3000)": Linear(reference=1000, present=3000),
        "Linear(reference=500, present=3000)": Linear(reference=500, present=3000),
        "Power(reference=1000)": Power(reference=1000),
        "Power(reference=1000, literal=True)": Power(reference=1000, literal=True),
    }
    lines = DOCS.read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    late = next([float(cell.replace(",", "")) for cell in row[1:]] for row in rows if row[0] == "staleness")
    table = {row[0]: row[1:] for row in rows if row[0] in curves}
    assert table == {name: [f"{curve.weight(tau):.2g}" for tau in late] for name, curve in curves.items()}
