"""A page taken apart: its elements, texts, scripts and figures."""

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Elements, texts, scripts and figures of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self.text = ""
        self._open: list[str] = []
        self._title = ""
        self.feed(str(html))  # markup would escape what is put to it
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        self._open.append(name)

    def handle_endtag(self, name: str) -> None:
        while self._open and self._open.pop() != name:
            pass

    def handle_data(self, text: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            if self.elements[-1][1].get("type") == "application/json":
                self.figures[self._title] = json.loads(text)
            else:
                self.scripts.append(text)
        elif inside != "style" and text.strip():  # blanks between elements are not shown
            self._title = text if inside == "h3" else self._title
            self.text += text + " "
