"""Which checkpoints build on which; a link that is missing, moved or replaced is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.checkpoint.chain import ChainLink, chain_of, superfluous, unfinished
from hotrow.checkpoint.manifest import Base
from hotrow.errors import InputError


def link(number: int, base: int | None = None, digest: str | None = None) -> ChainLink:
    return ChainLink(
        number, f"digest {number}", None if base is None else Base(number=base, digest=digest or f"digest {base}")
    )


FOLDER = {each.number: each for each in (link(1), link(2, 1), link(3, 2), link(4), link(5, 4))}


@pytest.mark.parametrize(("number", "chain"), [(1, [1]), (3, [1, 2, 3]), (4, [4]), (5, [4, 5])])
def test_a_chain_begins_with_a_full_one_and_ends_with_the_one_asked_for(number: int, chain: list[int]) -> None:
    assert [each.number for each in chain_of(FOLDER.get, number, "c")] == chain


FAULTS = {
    "missing": ({1: link(1), 3: link(3, 2)}, "checkpoint c: 000002 is missing, on which 000003 builds"),
    "none": ({1: link(1)}, "there is no number 3 in it"),
    "swapped": ({2: link(2), 3: link(3, 2, "another")}, "000002 is not the one that 000003 was saved on"),
    "repeated": ({2: link(2), 3: link(2)}, "000003 holds the manifest of number 2"),
    "a base under another number": ({2: link(1), 3: link(3, 2)}, "000002 holds the manifest of number 1"),
    "on itself": ({3: link(3, 3)}, "000003 builds on number 3, which is not before it"),
    "in a circle": ({3: link(3, 4), 4: link(4, 3)}, "000003 builds on number 4, which is not before it"),
}


@pytest.mark.parametrize(("links", "sentence"), FAULTS.values(), ids=FAULTS)
def test_a_broken_chain_is_named(links: dict[int, ChainLink], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        chain_of(links.get, 3, "c")


@pytest.mark.parametrize(("keep", "removed"), [(1, [3, 2, 1]), (2, [3, 2, 1]), (3, []), (4, []), (5, []), (9, [])])
def test_what_the_newest_build_on_stays(keep: int, removed: list[int]) -> None:
    assert superfluous(FOLDER, keep) == removed


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 12))
def test_after_a_removal_the_newest_still_load_and_no_removal_breaks_one(full: list[bool], keep: int) -> None:
    links = {}
    for number, whole in enumerate(full, 1):
        links[number] = link(number, None if whole or number == 1 else number - 1)
    left = dict(links)
    for number in superfluous(links, keep):
        del left[number]
        for each in left:
            chain_of(left.get, each, "c")
    assert set(sorted(links)[-keep:]) <= set(left)
    needed = {each.number for newest in sorted(links)[-keep:] for each in chain_of(links.get, newest, "c")}
    assert set(left) == needed


def test_a_folder_without_a_manifest_is_unfinished() -> None:
    assert unfinished([1, 2, 5], [2]) == [1, 5]
