"""Every public class and function has a docstring that begins with what it does, and an example that runs."""

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = ("hotrow", "hotrow.nn", "hotrow.optim", "hotrow.data", "hotrow.models", "hotrow.modes", "hotrow.metrics")
MORE = {"hotrow.store": ("RamTier", "find_or_first"), "hotrow.run": ("Run", "load_config")}  # that docs/ describe


def public_objects() -> Iterator[tuple[str, Any]]:
    """Classes and functions by dotted name; modules, type aliases and tables of classes need no example."""
    names = {package: importlib.import_module(package).__all__ for package in PACKAGES} | MORE
    for package, public in names.items():
        for name in public:
            value = getattr(importlib.import_module(package), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{package}.{name}", value


OBJECTS = dict(public_objects())


def problems(name: str, value: Any) -> list[str]:
    """What is wrong with the docstring of an object, as sentences."""
    text = inspect.getdoc(value) or ""
    first = text.split("\n")[0]
    found = [] if first and not first.startswith("Example") else [f"{name}: begin the docstring with what it does"]
    if "\nExample:\n" not in text or ">>>" not in text:
        return [*found, f"{name}: add an `Example:` block with `>>>` to its docstring"]
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=told.append)
    return [*found, *told]


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_object_has_an_example_that_runs(name: str) -> None:
    assert problems(name, OBJECTS[name]) == []


def test_an_example_that_is_missing_wrong_or_first_is_found() -> None:
    def without() -> None:
        """Does something."""

    def wrong() -> None:
        """Adds.

        Example:
            >>> 1 + 1
            3
        """

    assert problems("without", without) == ["without: add an `Example:` block with `>>>` to its docstring"]
    (told,) = problems("wrong", wrong)
    assert "Expected:\n    3\nGot:\n    2\n" in told
    assert problems("bare", type("Bare", (), {"__doc__": ""}))[0] == "bare: begin the docstring with what it does"


def test_examples_that_are_skipped_say_why() -> None:
    skipped = [text for value in OBJECTS.values() if "+SKIP" in (text := inspect.getdoc(value) or "")]
    assert skipped
    assert all("Not run here, because " in text for text in skipped)
