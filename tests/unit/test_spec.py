"""Faults of settings are told with their place, however deep, and without the settings around them."""

import pickle

import pytest

from hotrow.errors import ConfigError
from hotrow.spec import FieldError, SettingsError, Spec, sentence


class Inner(Spec):
    size: int = 1

    def model_post_init(self, context: object) -> None:
        if self.size == 13:
            raise ValueError("13 is never allowed: take 12")


class Outer(Spec):
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    number: float = 0.0


FAULTS = {
    "a value": ({"number": "x"}, "Outer.number='x': Input should be a valid number"),
    "deep": ({"inner": {"size": "x"}}, "Outer.inner.size='x': Input should be a valid integer"),
    "in a list": ({"many": [{}, {"size": None}]}, "Outer.many.1.size=None: Input should be a valid integer"),
    "a near name": ({"inner": {"sise": 3}}, "Outer.inner.sise=3: there is no such setting; did you mean size?"),
    "a far name": ({"colour": 3}, "Outer.colour=3: there is no such setting; there are: inner, many, number"),
    "two": ({"number": None, "inner": {"size": None}}, "Outer.inner.size=None: Input should be a valid integer; Out"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_its_place(settings: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Outer(**settings)
    assert str(caught.value).startswith(told)


def test_a_fault_of_a_whole_group_names_the_group_and_not_its_values() -> None:
    with pytest.raises(SettingsError) as caught:
        Inner(size=13)
    assert str(caught.value) == "Inner: 13 is never allowed: take 12"
    with pytest.raises(SettingsError) as caught:
        Outer(inner={"size": 13})
    assert str(caught.value) == "Outer.inner: 13 is never allowed: take 12"


def test_faults_can_be_told_with_another_owner_or_none() -> None:
    with pytest.raises(ConfigError) as caught:
        Outer(inner={"size": "x"})
    assert isinstance(caught.value, SettingsError)
    assert sentence("", caught.value.faults).startswith("inner.size='x': ")
    assert sentence("file", [FieldError("a", "=1: no"), FieldError("", ": never")]) == "file.a=1: no; file: never"


def test_an_error_survives_the_way_to_another_process() -> None:
    with pytest.raises(SettingsError) as caught:
        Outer(number="x")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.faults == caught.value.faults
