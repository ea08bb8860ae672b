"""`python -m hotrow.bench.gpu`: the measurement on machines that have no more than torch and Triton."""

import argparse
import sys
from pathlib import Path

from hotrow.bench.gpu.run import run
from hotrow.errors import HotrowError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hotrow.bench.gpu", description=__doc__)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--part", action="append", help="a part to measure; repeat for several (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, measures nothing")
    parser.add_argument("--interpret", action="store_true", help="check results in Triton's interpreter, without a GPU")
    parser.add_argument("--commit", help="commit of the sources, where they are not in a checkout")
    try:
        record = run(**vars(parser.parse_args(arguments)))
    except HotrowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(record.text())
    return record.exit_code


if __name__ == "__main__":
    sys.exit(main())
