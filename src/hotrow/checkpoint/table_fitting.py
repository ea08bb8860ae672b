"""How saved tables fit those of a run: which rows and which parts of them go where, the differences in lines. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hotrow.checkpoint.manifest import SavedTableFacts
from hotrow.checkpoint.renaming import Renames, remedy
from hotrow.config import AtLeast, Table
from hotrow.errors import InputError
from hotrow.store.saved import check_same_kind, differences

OF_OPTIMIZER = ("period", "updates")  # counters of a row that belong to its optimizer state
CONSEQUENCES = {
    "type": "values are converted",
    "init": "new rows start with it",
    "seed": "new rows start with it",
    "clock": "rows without this counter get that of a new row",
    "last_seen": "rows without this counter count as seen now",
    "eviction": "it holds for all rows from now on",
    "expiry": "it holds for all rows from now on",
    "admission": "saved rows need none, counts of other keys start at 0",
    "default": "keys without a row get it",
}


@dataclass(frozen=True, slots=True)
class OurTable:
    """A table of the run."""

    settings: Table
    fields: tuple[str, ...]  # counters of its rows
    capacity_rows: int  # 0: no limit


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Where the rows of one of our tables come from, and which parts of them are taken."""

    saved: str | None = None  # None: it starts empty
    rows: int = 0  # in the checkpoint
    state: bool = True  # optimizer state too; False: as in a new row
    fields: tuple[str, ...] = ()  # counters
    seen_now: bool = False  # rows get the samples of the checkpoint as last_seen
    ticks: tuple[int, int] = (1, 1)  # samples of a tick of last_seen: in the checkpoint, here
    capacity: tuple[object, object] = (None, None)  # in the checkpoint, here
    policy: str | None = None
    counts: bool = False  # counts of keys that wait for admission: the rule is the same


def check_same_tables(
    name: str, saved: Mapping[str, SavedTableFacts], ours: Mapping[str, OurTable], way: str = ""
) -> None:
    """InputError where tables of the checkpoint `name` differ from ours; `way` is a way out."""
    if set(saved) != set(ours):
        theirs, own = ", ".join(sorted(saved)), ", ".join(sorted(ours))
        raise InputError(f"checkpoint {name}: it has the tables {theirs} and this run {own}: use the same{way}")
    for each, table in ours.items():
        check_same_kind(table.settings, saved[each].settings)
        if table.capacity_rows and saved[each].rows > table.capacity_rows:
            message = f"{saved[each].rows:,} rows do not fit capacity={table.settings.capacity!r}"
            raise InputError(f"checkpoint {name}: table {each!r}: {message}: give it more")


def plan_tables(
    name: str, saved: Mapping[str, SavedTableFacts], ours: Mapping[str, OurTable], asked: Renames
) -> tuple[dict[str, TablePlan], list[str]]:
    """By our tables' names, and the differences; InputError where one of the checkpoint `name` cannot be used."""
    lines: list[str] = []
    source = _sources(name, saved, ours, asked, lines)
    plans: dict[str, TablePlan] = {}
    for each, table in ours.items():
        if (old := source.get(each)) is None:
            plans[each] = TablePlan()
            if each not in saved or asked.table(each) is not None:
                lines.append(f"table {each!r} is not in the checkpoint: it starts empty")
            continue
        facts = saved[old]
        if facts.dim != table.settings.dim:
            message = f"table {old!r}: dim is {facts.dim} in the checkpoint and {table.settings.dim} here"
            way = f"set tables.{each}.dim={facts.dim}, or leave the table out with --skip {old}"
            raise InputError(f"checkpoint {name}: {message}: {way}")
        if old != each:
            lines.append(f"table {old!r} of the checkpoint is table {each!r} here")
        plans[each] = table_plan(old, facts, table)
        lines += [f"table {each!r}: {line}" for line in _lines(facts, table)]
    return plans, lines


def table_plan(saved: str, facts: SavedTableFacts, table: OurTable) -> TablePlan:
    """What of the rows of the table `saved` fits ours, which has the same dim."""
    state = not any(name.startswith("optimizer.") for name, _, _ in differences(table.settings, facts.settings))
    return TablePlan(
        saved,
        facts.rows,
        state,
        tuple(name for name in facts.fields if name in table.fields and (state or name not in OF_OPTIMIZER)),
        "last_seen" in table.fields and "last_seen" not in facts.fields,
        (tick_samples(facts.settings.get("expiry")), tick_samples(table.settings.expiry)),
        (facts.settings.get("capacity"), table.settings.capacity),
        table.settings.policy,
        _same_admission(facts, table.settings),
    )


def _same_admission(facts: SavedTableFacts, table: Table) -> bool:
    ours = table.admission
    return isinstance(ours, AtLeast) and facts.settings.get("admission") == ours.model_dump(mode="json")


def tick_samples(expiry: int | None) -> int:
    """Samples of one tick of `last_seen`, as native/store/life.h counts them."""
    return 1024 if expiry is None else -(-expiry // 65_536)


def capacity_line(table: str, plan: TablePlan, kept: int) -> str:
    """What a capacity did to the rows of a table of which `kept` are left; empty where there is nothing to tell."""
    theirs, ours = plan.capacity
    lost = max(0, plan.rows - kept)
    if theirs == ours and (not lost or plan.policy is None):  # without a policy they had expired before the save
        return ""
    how = "refused" if plan.policy == "refuse" else f"evicted by {plan.policy}"
    what = f"{lost:,} of {plan.rows:,} rows are {how}" if lost else f"all {plan.rows:,} rows fit"
    return f"table {table!r}: capacity is {theirs!r} in the checkpoint and {ours!r} here: {what}"


def _sources(
    name: str,
    saved: Mapping[str, SavedTableFacts],
    ours: Mapping[str, OurTable],
    asked: Renames,
    lines: list[str],
) -> dict[str, str]:
    """By our tables' names, those in the checkpoint."""
    source: dict[str, str] = {}
    for each in saved:
        target = asked.table(each)
        if target is None:
            again = ": this run's table of that name starts empty" if each in ours else ""
            lines.append(f"table {each!r} of the checkpoint is left out{again}")
        elif target not in ours:
            what = f"table {each!r}" if target == each else f"table {each!r}, mapped to {target!r},"
            raise InputError(f"checkpoint {name}: {what} is not in this run: {remedy(each)}")
        elif target in source:
            message = f"tables {source[target]!r} and {each!r} would both become {target!r}"
            raise InputError(f"checkpoint {name}: {message}: {remedy(each)}")
        else:
            source[target] = each
    return source


def _lines(facts: SavedTableFacts, table: OurTable) -> Iterator[str]:
    told = False
    for name, theirs, own in differences(table.settings, facts.settings):
        differ = f"{name} is {theirs!r} in the checkpoint and {own!r} here"
        if name.startswith("optimizer."):  # the first: of another optimizer all settings may differ
            if not told:
                yield f"{differ}: values are taken, optimizer state starts as in a new row"
            told = True
        elif name != "name":  # that of the table itself: told where it is mapped
            yield f"{differ}: {CONSEQUENCES.get(name, 'this run uses its own')}"
