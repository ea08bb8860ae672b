"""Taobao's (Alimama's) display ads: raw_sample.csv, each row joined with its ad and its user.

ad_feature.csv and user_profile.csv are held in memory. The attributes of a user without a profile are missing ids.
Behaviour logs are not read.
"""

from collections.abc import Sequence

import pyarrow as pa

from hotrow.data.columns import Columns
from hotrow.data.derived import Attributes, Derived
from hotrow.data.files import File
from hotrow.data.parser import Dialect
from hotrow.data.schema import Ids, Log1p, Number, Schema, Time
from hotrow.data.source import Limit, Trouble
from hotrow.data.text import TextSource, read_table

USER, AD, PRICE = "user", "adgroup_id", "price"
OF_AD = ("cate_id", "campaign_id", "customer", "brand")
OF_USER = (
    "cms_segid", "cms_group_id", "final_gender_code", "age_level", "pvalue_level", "shopping_level", "occupation",
    "new_user_class_level",
)  # fmt: skip
DIALECT = Dialect(quote=None, missing=("", "NULL"))


def schema() -> Schema:
    return Schema(
        label="clk",
        numbers=(Number(column=PRICE, transform=Log1p()),),
        ids=tuple(Ids(column=column) for column in (USER, AD, "pid", *OF_AD, *OF_USER)),
        time=Time(column="time_stamp", format="s"),
        group=USER,
    )


def opened(
    files: Sequence[File], schema: Schema, ads: File, users: File, *, labels: bool, limit: Limit, trouble: Trouble
) -> Derived:
    read = Columns.of(schema, labels).instead(without=[PRICE, *OF_AD, *OF_USER], plus=[USER, AD])
    base = TextSource(files, schema, DIALECT, labels=labels, limit=limit, trouble=trouble, columns=read)

    def attributes(file: File, key: str, names: Sequence[str]) -> Attributes:
        columns = Columns((key, *names), numbers=frozenset([PRICE]))
        return Attributes(read_table(file, DIALECT, columns, trouble, limit), key, file.name)

    of_ad, of_user = attributes(ads, AD, (*OF_AD, PRICE)), attributes(users, "userid", OF_USER)

    def joined(batch: pa.RecordBatch) -> pa.RecordBatch:
        return of_user.beside(of_ad.beside(batch, AD), USER)

    return Derived(base, schema, joined)
