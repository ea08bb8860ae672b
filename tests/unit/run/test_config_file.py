"""What every config file shares: changes, paths that start at its folder, and a public home for both."""

import ast
from pathlib import Path

import pytest

from hotrow.data.config import DataConfig
from hotrow.errors import ConfigError
from hotrow.run.config_file import anchored_data, anchored_name, check_section, set_engine, set_field

RUN = Path(__file__).parents[3] / "src" / "hotrow" / "run"


def test_no_file_of_a_run_takes_private_names_of_another() -> None:
    taken = [
        f"{path.name}: {alias.name}"
        for path in sorted(RUN.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert taken == []


def test_a_change_makes_the_sections_it_needs() -> None:
    document: dict[str, object] = {"run": {"seed": 1}}
    set_field(document, "run.seed = 2")
    set_field(document, "tables.users.dim=4")
    assert document == {"run": {"seed": 2}, "tables": {"users": {"dim": 4}}}


@pytest.mark.parametrize("value", ["none", "None", "null"])
def test_none_leaves_an_optional_setting_out(value: str) -> None:
    document: dict[str, object] = {"run": {"seed": 1, "early_stopping": {"patience": 2}}}
    set_field(document, f"run.early_stopping={value}")
    set_field(document, f"run.local_batch={value}")
    set_field(document, 'run.name="none"')
    assert document == {"run": {"seed": 1, "name": "none"}}


def test_a_setting_without_its_section_is_answered_with_its_whole_name() -> None:
    sections = {"run": ("epochs", "name"), "model": ("name",), "data": ()}
    with pytest.raises(ConfigError, match=r"^--set epochs=3: name the section too, as run\.epochs$"):
        check_section("epochs=3", sections)
    with pytest.raises(ConfigError, match=r"as run\.name or model\.name$"):
        check_section("name=x", sections)
    for fine in ("run.epochs=3", "model=lr", "nothing=3"):
        check_section(fine, sections)


def test_paths_of_data_start_at_the_folder_and_addresses_stay(tmp_path: Path) -> None:
    data = DataConfig(format="criteo", train=("day_0", "s3://bucket/day_1"), test="/far/day_2")
    found = anchored_data(data, tmp_path)
    assert found.train == (str(tmp_path / "day_0"), "s3://bucket/day_1")
    assert anchored_data(found, Path("/elsewhere")) == found


def test_paths_upwards_are_written_without_dots_and_follow_links(tmp_path: Path) -> None:
    (tmp_path / "far" / "shop").mkdir(parents=True)
    (tmp_path / "shop").symlink_to(tmp_path / "far" / "shop")
    found = anchored_data(DataConfig(format="criteo", train=("../a.csv", "b.csv")), tmp_path / "shop")
    assert found.train == (str(tmp_path / "far" / "a.csv"), str(tmp_path / "shop" / "b.csv"))


@pytest.mark.parametrize(
    ("name", "found"),
    [("deepfm", "deepfm"), ("net.py:Net", "{base}/net.py:Net"), ("/far/net.py:Net", "/far/net.py:Net"), ("a:b", "a:b")],
)
def test_a_model_in_a_file_is_named_with_its_whole_path(name: str, found: str, tmp_path: Path) -> None:
    assert anchored_name(name, tmp_path) == found.format(base=tmp_path)


ENGINES = {
    "nothing is there": ({}, {"name": "ray", "shards": 2}, {"name": "ray", "shards": 2}),
    "a name": ({"engine": "ray"}, {"trainers": 3}, {"name": "ray", "trainers": 3}),
    "another name": ({"engine": "local"}, {"name": "ray", "trainers": 3}, {"name": "ray", "trainers": 3}),
    "settings stay": ({"engine": {"name": "ray", "bind": "node", "shards": 4}}, {"shards": 2},
                      {"name": "ray", "bind": "node", "shards": 2}),
    "settings without a name stay": ({"engine": {"bind": "node"}}, {"name": "ray"}, {"name": "ray", "bind": "node"}),
    "settings of another engine go": ({"engine": {"name": "ray", "shards": 4}}, {"name": "local"}, {"name": "local"}),
}  # fmt: skip


@pytest.mark.parametrize(("section", "given", "expected"), ENGINES.values(), ids=ENGINES)
def test_the_engine_of_the_command_line_replaces_that_of_the_file(
    section: dict[str, object], given: dict[str, object], expected: dict[str, object]
) -> None:
    document: dict[str, object] = {"run": section}
    set_engine(document, given)
    assert document == {"run": {"engine": expected}}


@pytest.mark.parametrize("section", [{}, {"engine": "local"}, {"engine": {"name": "local"}}])
@pytest.mark.parametrize("given", [{"trainers": 2}, {"address": "auto"}, {"name": "local", "shards": 2}])
def test_options_of_a_cluster_without_one_are_refused(section: dict[str, object], given: dict[str, object]) -> None:
    *_, (option, value) = given.items()
    told = f"--{option} {value}: is for a cluster, and the engine of this run is 'local': add --engine ray, or leave it"
    with pytest.raises(ConfigError, match=told):
        set_engine({"run": section}, given)


def test_no_option_changes_nothing() -> None:
    document: dict[str, object] = {"run": {"engine": {"name": "ray", "shards": 4}}}
    set_engine(document, {})
    assert document == {"run": {"engine": {"name": "ray", "shards": 4}}}
