"""A cache is refused where it would break the promise of a mode, with the reason and the way out."""

import pytest

import hotrow as hr
from hotrow.cache.modes import check_cached_engine, check_cached_mode
from hotrow.modes import MODES, Mode
from hotrow.types import Values

TABLES = {"plain": hr.Table(dim=2), "user": hr.Table(dim=2, cache=hr.Cache(capacity=10))}
LATE = hr.Staleness(decay=hr.Cutoff(tolerance=4), groups="embedding")


@pytest.mark.parametrize("mode", [hr.Hybrid(), hr.Async()], ids=lambda mode: mode.name)
def test_modes_that_apply_rows_on_arrival_take_a_cache(mode: Mode) -> None:
    check_cached_mode(TABLES, mode)


@pytest.mark.parametrize("name", sorted(MODES.keys() - {"hybrid", "async"}))
def test_other_modes_refuse_a_cache(name: str) -> None:
    mode = MODES[name].spec.model_construct(name=name)  # type: ignore[attr-defined]
    check_cached_mode({"plain": TABLES["plain"]}, mode)
    with pytest.raises(hr.ConfigError, match=rf"tables.user.cache: mode '{name}' .*take mode 'hybrid' or 'async'"):
        check_cached_mode(TABLES, mode)


@pytest.mark.parametrize("mode", [hr.Async(staleness=LATE), hr.Hybrid(staleness=LATE)], ids=lambda mode: mode.name)
def test_weights_of_late_gradients_refuse_a_cache(mode: Mode) -> None:
    with pytest.raises(hr.ConfigError, match="leave the mode's staleness out, or cache"):
        check_cached_mode(TABLES, mode)


def test_a_format_that_rounds_rows_is_refused() -> None:
    halves: dict[str, Values] = {"user": "fp16-scaled"}
    with pytest.raises(hr.ConfigError, match=r"tables.user.cache: .*engine.values='fp16-scaled' would round them"):
        check_cached_engine(TABLES, halves, 0)
    check_cached_engine(TABLES, halves, 2)  # of vectors then: rows are float32 anyway
    check_cached_engine({"plain": TABLES["plain"]}, dict.fromkeys(["plain"], "fp16-scaled"), 0)
