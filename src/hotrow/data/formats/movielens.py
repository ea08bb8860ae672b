"""MovieLens ratings, joined with what is known of users and films, in order of time. All is held in memory.

Three ways of writing them are known by the name of the ratings file: RecBole's (NAME.inter, .user, .item), that of the
original 100K (u.data, u.user, u.item) and that of the original 1M and 10M (ratings.dat, users.dat, movies.dat).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from hotrow.data.columns import Columns
from hotrow.data.derived import Attributes
from hotrow.data.files import File
from hotrow.data.parser import Dialect
from hotrow.data.schema import Ids, Label, Schema, Time
from hotrow.data.source import ArrowSource, Limit, Trouble
from hotrow.data.text import header_of, read_table
from hotrow.errors import ConfigError

USER, ITEM, RATING, TIME = "user_id", "item_id", "rating", "timestamp"
OF_USER = ("age", "gender", "occupation", "zip_code")
OF_ITEM = ("release_year", "genres")
LIKED = 4.0  # stars
GENRES = (  # of the flags in u.item, in their order
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """How one edition writes its three files, and how the rows of its films become ours."""

    ratings: Dialect
    users: Dialect
    items: Dialect
    item_columns: tuple[str, ...]
    item: Callable[[pa.Table], pa.Table]  # to item_id, release_year, genres


def schema(users: bool, items: bool) -> Schema:
    ids = [Ids(column=column) for column in (USER, ITEM, *(OF_USER if users else ()))]
    ids += [Ids(column="release_year"), Ids(column="genres", several=True)] if items else []
    return Schema(label=Label(column=RATING, at_least=LIKED), ids=tuple(ids), time=Time(column=TIME), group=USER)


def opened(
    files: Sequence[File],
    schema: Schema,
    users: File | None,
    items: File | None,
    *,
    labels: bool,
    limit: Limit,
    trouble: Trouble,
) -> ArrowSource:
    table = pa.concat_tables([_ratings(file, labels, trouble, limit) for file in files])
    table = table.sort_by([(TIME, "ascending")]).combine_chunks()
    layout = _layout(files[0])
    joins = [(USER, _users(users, layout, trouble, limit))] if users else []
    joins += [(ITEM, _items(items, layout, trouble, limit))] if items else []
    batches = [reduce(lambda batch, join: join[1].beside(batch, join[0]), joins, batch) for batch in table.to_batches()]
    return ArrowSource(
        batches, schema, labels=labels, limit=limit, trouble=trouble, rows=table.num_rows, name=files[0].name
    )


def _ratings(file: File, labels: bool, trouble: Trouble, limit: Limit) -> pa.Table:
    names = (USER, ITEM, *((RATING,) if labels else ()), TIME)
    columns = Columns(names, labels=frozenset([RATING]), time=Time(column=TIME))
    return read_table(file, _named(file, _layout(file).ratings), columns, trouble, limit)


def _users(file: File, layout: Layout, trouble: Trouble, limit: Limit) -> Attributes:
    table = read_table(file, _named(file, layout.users), Columns((USER, *OF_USER)), trouble, limit)
    return Attributes(table, USER, file.name)


def _items(file: File, layout: Layout, trouble: Trouble, limit: Limit) -> Attributes:
    table = read_table(file, _named(file, layout.items), Columns(layout.item_columns), trouble, limit)
    return Attributes(layout.item(table), ITEM, file.name)


def _named(file: File, dialect: Dialect) -> Dialect:
    """RecBole's header holds types behind the names: "user_id:token"."""
    if dialect.columns is not None:
        return dialect
    names = tuple(name.partition(":")[0] for name in header_of(file, dialect))
    return Dialect(delimiter=dialect.delimiter, quote=dialect.quote, columns=names)


def _layout(file: File) -> Layout:
    name = PurePosixPath(file.path).name
    for packed in (".gz", ".bz2", ".zst"):
        name = name.removesuffix(packed)
    for ending, layout in LAYOUTS.items():
        if name.endswith(ending):
            return layout
    raise ConfigError(f"train={file.name!r}: a MovieLens ratings file is named NAME.inter, u.data or ratings.dat")


def _of_recbole(table: pa.Table) -> pa.Table:
    return _film(table, table["release_year"], pc.split_pattern(table["class"], " "))


def _of_100k(table: pa.Table) -> pa.Table:
    flags = [table[genre].to_pylist() for genre in GENRES]
    genres = [[name for name, flag in zip(GENRES, row, strict=True) if flag == "1"] for row in zip(*flags, strict=True)]
    return _film(table, pc.utf8_slice_codeunits(table["release_date"], -4), pa.array(genres, pa.list_(pa.string())))


def _of_1m(table: pa.Table) -> pa.Table:
    year = pc.struct_field(pc.extract_regex(table["title"], r"\((?P<year>[0-9]{4})\)\s*$"), "year")
    return _film(table, year, pc.split_pattern(table["genres"], "|"))


def _film(table: pa.Table, year: pa.Array, genres: pa.Array) -> pa.Table:
    return pa.table({ITEM: table[ITEM], "release_year": year, "genres": genres})


def _plain(delimiter: str, *names: str) -> Dialect:
    return Dialect(delimiter, quote=None, header=False, columns=names, encoding="latin-1")


_TYPED = Dialect("\t", quote=None)
LAYOUTS = {
    ".inter": Layout(_TYPED, _TYPED, _TYPED, (ITEM, "release_year", "class"), _of_recbole),
    "u.data": Layout(
        _plain("\t", USER, ITEM, RATING, TIME),
        _plain("|", USER, *OF_USER),
        _plain("|", ITEM, "title", "release_date", "video_date", "address", *GENRES),
        (ITEM, "release_date", *GENRES),
        _of_100k,
    ),
    "ratings.dat": Layout(
        _plain("::", USER, ITEM, RATING, TIME),
        _plain("::", USER, "gender", "age", "occupation", "zip_code"),
        _plain("::", ITEM, "title", "genres"),
        (ITEM, "title", "genres"),
        _of_1m,
    ),
}
