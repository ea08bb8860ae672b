"""The id of a role is its name, and knows its kind and number, wherever it has been."""

import json
import pickle

import pytest

from hotrow.errors import InputError
from hotrow.types import RoleId


@pytest.mark.parametrize("role", [RoleId("shard", 0), RoleId("trainer", 12), RoleId("embedding worker", 3)])
def test_a_role_comes_back_from_its_text_and_from_a_pickle(role: RoleId) -> None:
    for again in (RoleId.parse(str(role)), pickle.loads(pickle.dumps(role))):
        assert (again, again.kind, again.number) == (role, role.kind, role.number)
    assert json.loads(json.dumps({role: 1})) == {f"{role.kind} {role.number}": 1}


def test_a_role_is_found_under_its_text() -> None:
    places: dict[str, str] = {RoleId("trainer", 1): "here"}
    assert places["trainer 1"] == "here"


@pytest.mark.parametrize("text", ["", "trainer", "trainer x", "trainer -1", "boss 0", " 0", "trainer  "])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="is not the name of a role; names are as 'shard 0' or 'trainer 0'"):
        RoleId.parse(text)
