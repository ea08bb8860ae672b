"""However long the file, a run takes the memory of its tables and a bounded rest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow.data.synthetic import SyntheticConfig, write_parquet

GIB = 1 << 30

PROGRAM = """
import json, re, sys
from pathlib import Path
from hotrow.run import Run, load_config

with Run(load_config(Path(sys.argv[1]))) as run:
    for _ in run:
        pass
    tables = sum(tier.stats().bytes for tier in run.trainer.tables.tiers.values())
# Of this program alone: the figure of getrusage begins with the memory of the process that started it.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024
print(json.dumps({"peak": peak, "tables": tables, "samples": run.summary["samples"]}))
"""

CONFIG = """
[data]
format = "parquet"
train = "many.parquet"
label = "label"
numbers = ["number_1"]
ids = ["id_1", "id_2", "id_3"]
shuffle = 100_000

[model]
name = "lr"

[tables.default]
dim = 1

[run]
global_batch = 65536
torch_threads = 1
tensorboard = false
"""


def peak_of(folder: Path, rows: int) -> dict[str, int]:
    made = SyntheticConfig(rows=rows, features=3, numbers=1, ids=5_000_000, test_rows=0)
    write_parquet(folder / "many.parquet", made)
    (folder / "many.toml").write_text(f"{CONFIG}folder = '{folder}'\n")
    command = [sys.executable, "-c", PROGRAM, str(folder / "many.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_short_file_stays_within_the_tables_and_one_gib(tmp_path: Path) -> None:
    found = peak_of(tmp_path, 300_000)
    assert found["samples"] == 300_000
    assert found["peak"] < found["tables"] + GIB


@pytest.mark.slow
def test_fifty_million_rows_stay_within_the_tables_and_one_gib(tmp_path: Path) -> None:
    found = peak_of(tmp_path, 50_000_000)
    assert found["samples"] == 50_000_000
    assert found["peak"] < found["tables"] + GIB
