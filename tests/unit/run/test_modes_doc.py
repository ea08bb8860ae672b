"""docs/modes.md says what is there: every mode with its promise, its settings and what it moves at a switch."""

import re
import tomllib
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.modes import MODES
from hotrow.modes.base import RunFacts
from hotrow.run.config import RunSection

TEXT = (Path(__file__).parents[3] / "docs" / "modes.md").read_text()
FACTS = RunFacts(workers=4, local_batch=16, global_batch=64)
PLACES = {"all-reduce": "all-reduce", "server": "server", "local": "on the workers"}  # as the table of pairs says


@pytest.mark.parametrize("name", MODES)
def test_the_table_is_that_of_the_code(name: str) -> None:
    entry = MODES[name]
    mode = entry.spec()
    settings = ", ".join(f"`{setting}`" for setting in entry.parameters)
    cells = (entry.dense, entry.embedding, entry.samples_per_step, entry.promise, settings, entry.paper)
    assert f"| `{name}` | `{type(mode).__name__}` | {' | '.join(cells)} |" in TEXT
    assert set(entry.parameters) == set(type(mode).model_fields) - {"name"}
    assert getattr(hr, type(mode).__name__) is type(mode)
    assert f"**{type(mode).__name__}" in TEXT, "what it promises"


def test_there_is_no_row_of_a_mode_that_is_not_there() -> None:
    table = TEXT[TEXT.index("| mode |") : TEXT.index("A mode whose steps")]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(MODES)


@pytest.mark.parametrize("name", MODES)
def test_steps_hold_the_samples_that_the_table_says(name: str) -> None:
    mode, said = MODES[name].spec(), MODES[name].samples_per_step
    values = {"G": 64, "B": 16, "b B": 20 * 16, "(N - b) B": 3 * 16, "B per worker, merged": 16}
    assert mode.samples_per_step(FACTS) == values[said]


def test_the_table_of_pairs_names_every_mode_where_it_keeps_dense_parameters() -> None:
    header = next(line for line in TEXT.splitlines() if line.startswith("| from"))
    named = {place: set(names.split(", ")) for place, names in re.findall(r"\| ([a-z -]+): ([\w, ]+?) (?=\|)", header)}
    specs = [entry.spec() for entry in MODES.values()]
    expected = {word: {type(mode).__name__ for mode in specs if mode.dense == dense} for dense, word in PLACES.items()}
    assert named == expected


def test_its_config_is_a_config() -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.M | re.S)
    run = RunSection(**tomllib.loads(block)["run"])
    assert (run.mode, run.workers, run.global_batch) == (hr.GBA(tolerance=4), 4, 4096)


def test_files_that_it_names_are_there() -> None:
    folder = Path(__file__).parents[3] / "docs"
    named = set(re.findall(r"\]\((\w+\.md)\)", TEXT))
    assert {name for name in named if not (folder / name).exists()} == set()
    assert "staleness.md" in named
