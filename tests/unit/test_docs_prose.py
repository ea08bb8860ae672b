"""Pages read in a diff and lead somewhere: lines that fit, links to files and headings that exist."""

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("examples/**/*.md")]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LONGEST = 300

FENCE = re.compile(r"^\s*```")
CODE_SPAN = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\(([^()\s]+)\)")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines outside of fenced and indented code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def long_lines(text: str) -> list[str]:
    return [
        f"line {number} has {len(line)} characters: one sentence per line, {LONGEST} at most"
        for number, line in prose(text)
        if len(line) > LONGEST and not line.startswith("|")
    ]


def anchors(text: str) -> set[str]:
    """Headings as GitHub links to them; a repeated one gets a number."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for _, line in prose(text):
        if match := re.match(r"#{1,6} (.+)", line):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def broken_links(page: Path) -> list[str]:
    faults = []
    for number, line in prose(page.read_text()):
        for target in LINK.findall(CODE_SPAN.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue  # other sites are not asked
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                faults.append(f"line {number}: {target}: there is no such file")
            elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
                faults.append(f"line {number}: {target}: there is no such heading")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_line_of_prose_is_too_long_for_a_diff(page: Path) -> None:
    assert long_lines(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page) == []


def test_faults_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# One: two `three`\n\n# Twice\n\n# Twice\n\n```\n# code\n```\n")
    page = tmp_path / "page.md"
    good = "[a](there.md) [b](there.md#one-two-three) [c](there.md#twice-1) [d](https://x.y/z) `[e](no.md)`"
    page.write_text(f"{good}\n    [f](no.md)\n| {'x' * 400} |\n")
    assert broken_links(page) == []
    assert long_lines(page.read_text()) == []
    page.write_text(f"[a](no.md) [b](there.md#code)\n[c](#none)\n{'x' * 301}\n{'x' * 300}\n")
    assert [fault.split(": ")[1] for fault in broken_links(page)] == ["no.md", "there.md#code", "#none"]
    assert [fault.split(" has")[0] for fault in long_lines(page.read_text())] == ["line 3"]


def test_the_architecture_page_has_the_import_lines_that_are_tested() -> None:
    layers = runpy.run_path(str(Path(__file__).parent / "test_import_directions.py"))["LAYERS"]
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    block = page.split("### Import layers")[1].split("\n    ", 1)[1].split("\n\n")[0]
    written = [line.strip().removesuffix("pure").strip() for line in block.splitlines()]
    assert written == [", ".join(names) or "hotrow/__init__.py, the public names" for names in layers]
