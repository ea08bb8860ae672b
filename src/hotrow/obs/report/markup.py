"""HTML that is escaped by construction: plain text becomes text, only what `tag` made is markup."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from hotrow.printable import printable

VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup. Everything else is text and gets escaped."""

    __slots__ = ()


def tag(element: str, *children: str | None, **attributes: str | None) -> Html:
    """An element; `class_` is class, `data_label` is data-label, None leaves an attribute or a child out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{element}{given}>" if element in VOID else f"<{element}{given}>{join(children)}</{element}>")


def join(parts: Iterable[str | None]) -> Html:
    """Parts one after the other, texts escaped."""
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts if part is not None))


def _text(text: str) -> str:
    """Escaped, and what a terminal would take for a command visible: pages are looked at there too."""
    return escape(printable(text))


def raw(element: str, content: str, **attributes: str) -> Html:
    """A script or style of our own; its content may not end the element, which no escape could prevent."""
    if f"</{element}" in content.lower():
        raise ValueError(f"the content of <{element}> would end it")
    return Html(str(tag(element, **attributes)).replace(f"></{element}>", f">{content}</{element}>"))


def data(value: Any) -> Html:
    """JSON for a script of the page to read; nothing in it can end the element or start another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return raw("script", safe, type="application/json")


def table(titles: list[str], rows: Iterable[Html]) -> Html:
    """A table; a narrow page shows its rows as blocks and takes the titles from the cells."""
    head = tag("thead", tag("tr", *(tag("th", title) for title in titles)))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="scroll")


def row(titles: list[str], cells: Iterable[str], class_: str | None = None) -> Html:
    """A row of such a table: as many cells as it has titles."""
    labelled = (tag("td", cell, data_label=title) for title, cell in zip(titles, cells, strict=False))
    return tag("tr", *labelled, class_=class_)


def section(title: str, anchor: str, *parts: str | None) -> Html:
    """A part of the page with its heading."""
    return tag("section", tag("h2", title), join(parts), id=anchor)
