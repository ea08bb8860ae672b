"""HTML from the templates in the package: a text becomes text, only what a template made is markup."""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from hotrow.printable import printable


def render(template: str, **values: Any) -> Markup:
    """The markup of a template, by its path in the package: "obs/report/templates/run.html"."""
    return Markup(_environment().get_template(template).render(values))


def inline(element: str, content: str) -> Markup:
    """A script or style of our own; its content may not end the element, which no escape could prevent."""
    if f"</{element}" in content.lower():
        raise ValueError(f"the content of <{element}> would end it")
    return Markup(content)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return found


def _source(template: str) -> str:
    return files("hotrow").joinpath(template).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    """What a terminal would take for a command made visible: pages are looked at there too."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
