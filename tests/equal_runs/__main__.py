"""Shows that a refactoring changes nothing that a run computes.

    python tests/equal_runs record before.json [--ray]      at the commit before
    python tests/equal_runs record after.json [--ray]       at the commit after, on the same machine
    python tests/equal_runs compare before.json after.json  exit code 1 and a line for each difference

Recorded are the losses of all steps, a digest of rows and dense parameters, and every event with its effects: of all
modes in one process with one worker and with four, in the simulator with real gradients, and with `--ray` on a small
cluster. Bits are compared with one worker and in the simulator, elsewhere losses within tolerances, or counts.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from equal_runs.comparing import differences
from equal_runs.recording import record


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/equal_runs", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run everything and write a file")
    recording.add_argument("file", type=Path)
    recording.add_argument("--ray", action="store_true", help="also on a cluster of this machine")
    comparing = commands.add_parser("compare", help="compare two files")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        runs = record(with_ray=given.ray)
        given.file.write_text(json.dumps(runs, indent=1))
        print(f"{given.file}: {len(runs)} runs")
        return 0
    before, after = (json.loads(file.read_text()) for file in (given.before, given.after))
    found = differences(before, after)
    print("\n".join(found) if found else f"all {len(before)} runs are equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
