"""The first program of a page runs as it is printed. Pages with tests of their own are left out."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NEEDS = {"wire": ("zmq", "msgspec"), "gpu": ("triton",)}


@pytest.mark.parametrize("page", ["dense", "gpu", "routes", "staleness", "store", "switching", "topology", "wire"])
def test_the_first_program_of_a_page_runs(page: str) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module)
    program = re.findall(r"^```python\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.M | re.S)[0]
    exec(compile(program, f"{page}.md", "exec"), {"__name__": page})
