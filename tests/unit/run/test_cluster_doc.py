"""docs/cluster.md says what is there: every setting with its default, every mode and column; its examples are whole."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from hotrow.cli import load
from hotrow.cli.cluster import COLUMNS
from hotrow.errors import ConfigError
from hotrow.modes import MODES
from hotrow.run import load_config
from hotrow.runtime.settings import Ray, Resources
from hotrow.spec import Spec

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "cluster.md").read_text()
EXAMPLES = ROOT / "examples" / "cluster"
ROWS = {name: default.strip() for name, default in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", TEXT, re.M)}


def as_written(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, Spec) or value == {}:
        return "`{}`"
    if isinstance(value, bool):  # as TOML writes it
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


@pytest.mark.parametrize("section", [Ray, Resources])
def test_every_setting_stands_there_with_its_default(section: type[Ray | Resources]) -> None:
    for name, field in section.model_fields.items():
        assert ROWS.get(name) == as_written(field.get_default(call_default_factory=True)), name


@pytest.mark.parametrize(("written", "most"), [("1GiB", 2**30), ("3MB", 3_000_000), (5, 5)])
def test_parked_bytes_are_a_size_or_a_number(written: str | int, most: int) -> None:
    assert Ray(parked_bytes=written).parked_most == most
    for wrong in (0, "0B", "much", 1.5):
        with pytest.raises(ConfigError, match="parked_bytes"):
            Ray(parked_bytes=wrong)


def test_its_configs_are_settings_of_the_engine() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", TEXT, re.M | re.S)
    assert len(blocks) == 3
    for block in blocks:
        assert Ray(**tomllib.loads(block)["run"]["engine"]).trainers_fewest >= 1


def test_every_mode_stands_in_its_table() -> None:
    table = TEXT[TEXT.index("## Modes") : TEXT.index("## When something is lost")]
    assert {name for name in re.findall(r"`(\w+)`", table.split("In `sync`")[0]) if name in MODES} == set(MODES)


def test_every_column_of_the_status_is_explained() -> None:
    lines = re.findall(r"^\| ([a-z ,]+) \| [a-z]", TEXT, re.M)
    explained = {name for line in lines for name in line.split(", ")}
    assert set(COLUMNS) - {"role", "address"} <= explained


def strange_options(command: str) -> set[str]:
    """Those that `hotrow train` does not know."""
    known = {option for parameter in load("train").params for option in parameter.opts}
    return {word for word in shlex.split(command) if word.startswith("--")} - known


def test_its_commands_have_only_options_that_exist() -> None:
    commands = re.findall(r"^(hotrow train .*?)(?:#.*)?$", TEXT, re.M)
    assert len(commands) == 3
    assert set().union(*map(strange_options, commands)) == set()


def test_the_example_config_trains_on_ray() -> None:
    engine = load_config(EXAMPLES / "train.toml").run.engine
    assert isinstance(engine, Ray)
    assert (engine.trainers, engine.shards) == (2, 2)


def test_the_script_for_several_hosts_is_valid_shell_and_asks_for_hosts() -> None:
    script = EXAMPLES / "several_hosts.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    bare = subprocess.run(["bash", script, "x.toml"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert bare.returncode != 0
    assert "set HOSTS to the names of the hosts" in bare.stderr
    called = re.search(r'hotrow" (train .*?)"\$@"', script.read_text(), re.S)
    assert called is not None
    assert strange_options(called[1].replace("\\\n", " ")) == set()


def test_both_ways_to_several_hosts_start_ray_with_a_token() -> None:
    script = (EXAMPLES / "several_hosts.sh").read_text()
    starts = [match.start() for match in re.finditer(r"/ray['\"] start", script)]
    assert len(starts) == 2
    assert script.index("export RAY_AUTH_MODE=token RAY_AUTH_TOKEN\n") < starts[0]
    assert "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN &&" in script[starts[0] : starts[1]]
    yaml = pytest.importorskip("yaml")
    cluster = yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text())["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}


def test_the_manifest_for_kubernetes_is_a_whole_job() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    command = shlex.split(job["spec"]["entrypoint"])
    assert command[:3] == ["hotrow", "train", "/data/train.toml"]
    assert strange_options(job["spec"]["entrypoint"]) == set()
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {pod["image"] for group in groups for pod in group["template"]["spec"]["containers"]}
    assert len(images) == 1
    room = sum(group["replicas"] * int(group["rayStartParams"]["num-cpus"]) for group in cluster["workerGroupSpecs"])
    asked = sum(int(command[command.index(option) + 1]) for option in ("--trainers", "--shards"))
    assert room >= asked
