"""Criteo's display ads: the Kaggle contest's TSV files and the day files of the 1 TB log, with the same 40 columns.

A label, 13 whole numbers and 26 hexadecimal tokens, no header, no time. A test file without labels has 39 columns.
"""

from collections.abc import Sequence

from hotrow.data.files import File
from hotrow.data.parser import Dialect
from hotrow.data.schema import Ids, Log1p, Number, Schema, Transform
from hotrow.data.source import Limit, Trouble
from hotrow.data.text import TextSource

LABEL = "label"
NUMBERS = tuple(f"I{place}" for place in range(1, 14))
TOKENS = tuple(f"C{place}" for place in range(1, 27))
DIALECT = Dialect(delimiter="\t", quote=None, header=False, columns=(LABEL, *NUMBERS, *TOKENS))


def schema(transform: Transform | None = None) -> Schema:
    """Numbers by log1p, or another transform for all of them; tokens as texts, also those that look like numbers."""
    return Schema(
        label=LABEL,
        numbers=tuple(Number(column=column, transform=transform or Log1p()) for column in NUMBERS),
        ids=tuple(Ids(column=column, text=True) for column in TOKENS),
    )


def opened(files: Sequence[File], schema: Schema, *, labels: bool, limit: Limit, trouble: Trouble) -> TextSource:
    return TextSource(files, schema, DIALECT, labels=labels, limit=limit, trouble=trouble)
