"""What may differ between a checkpoint and a run is said in one line; what cannot be used is refused with a remedy."""

from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.checkpoint.dense_fitting import DenseFacts, OptimizerFacts
from hotrow.checkpoint.fitting import LoadPlan, RunTargets, SavedFacts, plan_load, plan_strictly
from hotrow.checkpoint.manifest import SavedShard, SavedTableFacts
from hotrow.checkpoint.table_fitting import OurTable, TablePlan, capacity_line, tick_samples
from hotrow.store import RamTier

SHARD = SavedShard(rows="tables/0/0-of-1.arrow", count=300)
NET = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (1, 4)}
PLAIN = hr.Table(dim=3)


def adam(*names: str | None) -> OptimizerFacts:
    return OptimizerFacts("Adam", (len(names),), names)


def table(settings: hr.Table) -> SavedTableFacts:
    tier = RamTier(settings)
    kept = settings.model_dump(mode="json")
    return SavedTableFacts(
        settings=kept, dim=tier.dim, state_dim=tier.state_dim, fields=tier.fields, rows=300, shards=(SHARD,)
    )


def saved(
    tables: dict[str, hr.Table] | None = None,
    net: dict[str, tuple[int, ...]] | None = NET,
    optimizer: OptimizerFacts | None = None,
) -> SavedFacts:
    facts = {name: table(each) for name, each in ({"t": PLAIN} if tables is None else tables).items()}
    return SavedFacts("c", facts, None if net is None else DenseFacts(net, optimizer))


def ours(
    tables: dict[str, hr.Table] | None = None,
    net: dict[str, tuple[int, ...]] = NET,
    optimizer: OptimizerFacts | None = None,
) -> RunTargets:
    given = {"t": PLAIN} if tables is None else tables
    tiers = {name: RamTier(each) for name, each in given.items()}
    facts = {name: OurTable(given[name], tier.fields, tier.capacity_rows) for name, tier in tiers.items()}
    return RunTargets(facts, DenseFacts(net, optimizer))


def plan(
    theirs: SavedFacts, own: RunTargets, map: dict[str, str] | None = None, skip: tuple[str, ...] = ()
) -> LoadPlan:
    return plan_load(theirs, own, map or {}, skip)


def test_what_is_the_same_has_no_lines_and_is_what_a_strict_load_does() -> None:
    theirs, own = saved(optimizer=adam(*NET)), ours(optimizer=adam(*NET))
    found = plan(theirs, own)
    assert found.lines == []
    assert found == plan_strictly(theirs, own)
    assert found.states == {0: 0, 1: 1, 2: 2}


# Tables


def test_a_table_is_renamed_left_out_or_added() -> None:
    found = plan(saved({"t": PLAIN, "old": PLAIN}), ours({"u": PLAIN, "new": PLAIN}), {"t": "u"}, ("old",))
    assert {name: each.saved for name, each in found.tables.items()} == {"u": "t", "new": None}
    assert found.lines == [
        "table 'old' of the checkpoint is left out",
        "table 't' of the checkpoint is table 'u' here",
        "table 'new' is not in the checkpoint: it starts empty",
    ]


def test_a_table_that_is_left_out_and_is_here_starts_empty() -> None:
    found = plan(saved(), ours(), skip=("t",))
    assert found.tables["t"].saved is None
    assert found.lines == ["table 't' of the checkpoint is left out: this run's table of that name starts empty"]


def test_two_tables_may_change_places() -> None:
    found = plan(saved({"t": PLAIN, "u": PLAIN}), ours({"t": PLAIN, "u": PLAIN}), {"t": "u", "u": "t"})
    assert {name: each.saved for name, each in found.tables.items()} == {"t": "u", "u": "t"}


OTHER_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer": (
        {"optimizer": hr.Adam()},
        "optimizer.name is 'adagrad' in the checkpoint and 'adam' here: values are",
    ),
    "its settings": ({"optimizer": hr.Adagrad(eps_inside=True)}, "optimizer.eps_inside is False in the checkpoint and"),
    "type": ({"type": "bfloat16"}, "type is 'float32' in the checkpoint and 'bfloat16' here: values are converted"),
    "admission": ({"admission": hr.AtLeast(count=2)}, "admission is None in the checkpoint and {"),
    "eviction": ({"capacity": 999, "eviction": "lfu"}, "eviction is None in the checkpoint and 'lfu' here: it holds"),
    "expiry": ({"expiry": 1000}, "expiry is None in the checkpoint and 1000 here: it holds for all rows from now on"),
    "seed": ({"seed": 3}, "seed is 0 in the checkpoint and 3 here: new rows start with it"),
    "clock": ({"clock": True}, "clock is False in the checkpoint and True here: rows without this counter get"),
}


@pytest.mark.parametrize(("settings", "line"), OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_another_setting_is_one_line_and_a_strict_load_refuses_it(settings: dict[str, Any], line: str) -> None:
    own = ours({"t": hr.Table(dim=3, **settings)})
    found = plan(saved(), own)
    assert len(found.lines) == 1
    assert found.lines[0].startswith(f"table 't': {line}")
    assert found.tables["t"].state == ("optimizer" not in settings)
    with pytest.raises(hr.InputError, match=next(iter(set(settings) - {"capacity"}))):
        plan_strictly(saved(), own)


def test_a_setting_that_a_resume_may_change_is_no_difference() -> None:
    found = plan(saved(), ours({"t": hr.Table(dim=3, optimizer=hr.Adagrad(lr=0.9))}))
    assert found.lines == []
    assert found.tables["t"].state


def test_counters_of_another_optimizer_are_not_taken() -> None:
    theirs = saved({"t": hr.Table(dim=3, optimizer=hr.Adam(), clock=True)})
    found = plan(theirs, ours({"t": hr.Table(dim=3, clock=True)})).tables["t"]
    assert found.fields == ("version", "last_update", "clock")
    same = plan(theirs, ours({"t": hr.Table(dim=3, optimizer=hr.Adam())})).tables["t"]
    assert same.fields == ("version", "last_update", "updates")


def test_rows_without_last_seen_count_as_seen_now_and_ticks_are_those_of_the_expiry() -> None:
    assert plan(saved(), ours({"t": hr.Table(dim=3, expiry=10)})).tables["t"].seen_now
    assert not plan(saved(), ours()).tables["t"].seen_now
    kept = plan(saved({"t": hr.Table(dim=3, last_seen=True)}), ours({"t": hr.Table(dim=3, expiry=65_537)})).tables["t"]
    assert (kept.seen_now, kept.ticks) == (False, (1024, 2))


@pytest.mark.parametrize("expiry", [None, 1, 65_536, 65_537, 10_000_000])
def test_a_tick_is_as_long_as_in_the_store(expiry: int | None) -> None:
    tier = RamTier(hr.Table(dim=1, expiry=expiry, last_seen=True))
    tier.find_or_init(np.array([7]), samples=1_000_000)
    assert tier.read(np.array([7]), "last_seen")[0] == 1_000_000 // tick_samples(expiry)


@pytest.mark.parametrize(
    ("capacity", "policy", "kept", "line"),
    [
        ((None, 32), "lru", 32, "capacity is None in the checkpoint and 32 here: 268 of 300 rows are evicted by lru"),
        ((None, 32), "refuse", 32, "capacity is None in the checkpoint and 32 here: 268 of 300 rows are refused"),
        ((None, 320), "lru", 300, "capacity is None in the checkpoint and 320 here: all 300 rows fit"),
        ((320, 320), "lru", 299, "capacity is 320 in the checkpoint and 320 here: 1 of 300 rows are evicted by lru"),
        ((320, 320), "lru", 300, ""),
    ],
)
def test_what_a_capacity_does_is_counted(capacity: tuple[object, object], policy: str, kept: int, line: str) -> None:
    told = capacity_line("t", TablePlan("t", rows=300, capacity=capacity, policy=policy), kept)
    assert told == (line and f"table 't': {line}")


REFUSED_TABLES: dict[str, tuple[SavedFacts, RunTargets, dict[str, str], tuple[str, ...], str]] = {
    "unused": (saved({"t": PLAIN, "u": PLAIN}), ours(), {}, (), "table 'u' is not in this run: leave .* --skip u"),
    "mapped to nothing": (saved(), ours(), {"t": "x"}, (), "table 't', mapped to 'x', is not in this run"),
    "two into one": (saved({"t": PLAIN, "u": PLAIN}), ours(), {"u": "t"}, (), "'t' and 'u' would both become 't'"),
    "dim": (saved(), ours({"t": hr.Table(dim=4)}), {}, (), "dim is 3 in the checkpoint and 4 here: set tables.t.dim=3"),
    "unknown": (saved(), ours(), {}, ("tt",), r"--skip tt: .* no table or dense layer 'tt' \(did you mean t\?\)"),
    "unknown in map": (saved(), ours(), {"z": "t"}, (), "--map z=t: checkpoint c has no table or dense layer 'z'"),
    "mapped and skipped": (saved(), ours(), {"t": "t"}, ("t",), "--skip t: 't' is mapped or skipped by another"),
    "ambiguous": (saved({"a": PLAIN}), ours({"a": PLAIN}), {}, ("a",), "names a .*: write tables.a or model.a"),
}


@pytest.mark.parametrize(("theirs", "own", "names", "skip", "told"), REFUSED_TABLES.values(), ids=REFUSED_TABLES)
def test_tables_that_cannot_be_used_are_refused(
    theirs: SavedFacts, own: RunTargets, names: dict[str, str], skip: tuple[str, ...], told: str
) -> None:
    with pytest.raises(hr.InputError, match=told):
        plan(theirs, own, names, skip)


def test_a_prefix_tells_a_table_from_a_layer_of_the_same_name() -> None:
    theirs, own = saved({"a": PLAIN}), ours({"a": PLAIN})
    assert plan(theirs, own, skip=("tables.a",)).tables["a"].saved is None
    found = plan(theirs, own, skip=("model.a",))
    assert (found.tables["a"].saved, found.tensors) == ("a", {"b.weight": "b.weight"})


# The network


def test_tables_alone_leave_the_network_fresh() -> None:
    found = plan(saved(net=None), ours(optimizer=adam(*NET)))
    assert found.lines == ["the checkpoint holds tables alone: the network starts fresh"]
    assert not found.tensors
    with pytest.raises(hr.InputError, match=r"it holds tables alone, no dense tensors: .* with --load"):
        plan_strictly(saved(net=None), ours())


def test_a_layer_is_renamed_left_out_or_new_and_its_optimizer_state_follows() -> None:
    theirs = saved(net={**NET, "old.bias": (1,)}, optimizer=adam("a.weight", "a.bias", "b.weight", "old.bias"))
    here = {"c.d.weight": (4, 3), "c.d.bias": (4,), "b.weight": (1, 4), "new.bias": (2,)}
    found = plan(
        theirs, ours(net=here, optimizer=adam("b.weight", "c.d.bias", "new.bias", "c.d.weight")), {"a": "c.d"}, ("old",)
    )
    assert found.tensors == {"a.weight": "c.d.weight", "a.bias": "c.d.bias", "b.weight": "b.weight"}
    assert found.states == {0: 3, 1: 1, 2: 0}
    assert found.lines == [
        "dense layer 'a' of the checkpoint is 'c.d' here",
        "dense layer 'old' (bias) of the checkpoint is left out",
        "dense layer 'new' (bias) is not in the checkpoint: it starts fresh",
    ]


def test_a_layer_of_another_shape_is_refused_unless_it_is_skipped() -> None:
    here = {**NET, "b.weight": (1, 9)}
    with pytest.raises(hr.InputError, match=r"'b.weight' is \(1, 4\) in the checkpoint and \(1, 9\) .* --skip b, then"):
        plan(saved(), ours(net=here))
    found = plan(saved(), ours(net=here), skip=("b",))
    assert found.lines == ["dense layer 'b' (weight) of the checkpoint is left out: it starts fresh"]
    assert "b.weight" not in found.tensors


def test_the_longest_name_holds() -> None:
    found = plan(saved(), ours(net={"x.weight": (4, 3), "b.weight": (1, 4)}), {"a": "x"}, ("a.bias",))
    assert found.tensors == {"a.weight": "x.weight", "b.weight": "b.weight"}


def test_tensors_that_cannot_be_used_are_refused() -> None:
    without = {name: shape for name, shape in NET.items() if name != "b.weight"}
    with pytest.raises(
        hr.InputError, match=r"'b.weight' is not in this model: leave it out with --skip b, or .* --map b="
    ):
        plan(saved(), ours(net=without))
    with pytest.raises(hr.InputError, match=r"'a.bias', mapped to 'z.bias', is not in this model"):
        plan(saved(), ours(), {"a": "z"})
    twice: dict[str, tuple[int, ...]] = {"a.w": (1,), "b.w": (1,)}
    with pytest.raises(hr.InputError, match=r"'a.w' and 'b.w' would both become 'b.w'"):
        plan(saved(net=twice), ours(net=twice), {"a": "b"})


# The dense optimizer


@pytest.mark.parametrize(
    ("theirs", "own", "line"),
    [
        (
            adam(*NET),
            OptimizerFacts("SGD", (3,), tuple(NET)),
            "is Adam in the checkpoint and SGD here: its state starts",
        ),
        (adam(*NET), None, "is Adam in the checkpoint and None here: its state starts fresh"),
        (None, adam(*NET), "is None in the checkpoint and Adam here: its state starts fresh"),
        (
            adam("a.weight"),
            adam("a.weight", "a.bias"),
            "'a.bias' did not learn in the checkpoint: its state starts fresh",
        ),
        (
            adam("a.weight", "a.bias"),
            adam("a.bias"),
            "'a.weight' of the checkpoint does not learn here: its state is left",
        ),
    ],
)
def test_another_dense_optimizer_is_one_line(
    theirs: OptimizerFacts | None, own: OptimizerFacts | None, line: str
) -> None:
    found = plan(saved(optimizer=theirs), ours(optimizer=own))
    assert len(found.lines) == 1
    assert line in found.lines[0]
    with pytest.raises(hr.InputError, match=r"dense optimizer"):
        plan_strictly(saved(optimizer=theirs), ours(optimizer=own))


def test_without_names_the_order_counts_as_long_as_the_tensors_are_the_same() -> None:
    nameless = OptimizerFacts("Adam", (3,), None)
    assert plan(saved(optimizer=nameless), ours(optimizer=adam(*NET))).states == {0: 0, 1: 1, 2: 2}
    assert plan_strictly(saved(optimizer=nameless), ours(optimizer=adam(*NET))).states == {0: 0, 1: 1, 2: 2}
    found = plan(saved(optimizer=nameless), ours(net={**NET, "n.bias": (1,)}, optimizer=adam(*NET, "n.bias")))
    assert not found.states
    assert (
        found.lines[-1] == "the checkpoint does not name the parameters of the dense optimizer: its state starts fresh"
    )


def test_a_strict_load_follows_names_and_refuses_other_parameters() -> None:
    theirs, own = adam("a.weight", "a.bias"), adam("a.bias", "a.weight")
    assert plan_strictly(saved(optimizer=theirs), ours(optimizer=own)).states == {0: 1, 1: 0}
    with pytest.raises(hr.InputError, match=r"'a.bias' learns in the checkpoint alone"):
        plan_strictly(saved(optimizer=theirs), ours(optimizer=adam("a.weight", "b.weight")))
