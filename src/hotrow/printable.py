"""Text from files made safe to show: column names, ids, paths and lines may hold anything, also a terminal's commands.

What moves a cursor, sets a colour, rings or turns the direction of writing is shown as an escape (ESC as \\x1b), and so
is half of a surrogate pair, which stands for a byte of a file's name that is no UTF-8 and which no stream takes.
"""

import re

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # but tab and line feed
_DIRECTION = r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_SURROGATE = r"\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CONTROL}{_DIRECTION}{_SURROGATE}]")


def printable(text: str) -> str:
    """The text with what is unsafe to show as an escape; line feeds and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """The same on one line: a name that holds a line feed must not look like two messages."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
