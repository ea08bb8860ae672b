"""Avazu's mobile ads: CSV with a header. The column `hour` (yymmddHH) is the time, and its hour of the day is an id.

The hour itself is no feature: it never comes again. Neither is `id`, which names the row.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hotrow.data.columns import Columns
from hotrow.data.derived import Derived
from hotrow.data.files import File
from hotrow.data.parser import Dialect
from hotrow.data.schema import Schema, Time
from hotrow.data.source import Limit, Trouble
from hotrow.data.text import TextSource
from hotrow.data.times import times

HOUR, HOUR_OF_DAY = "hour", "hour_of_day"
TIME = Time(column=HOUR, format="%y%m%d%H")
IDS = (
    "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category",
    "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21",
)  # fmt: skip


def schema() -> Schema:
    return Schema(label="click", ids=(HOUR_OF_DAY, *IDS), time=TIME)


def opened(files: Sequence[File], schema: Schema, *, labels: bool, limit: Limit, trouble: Trouble) -> Derived:
    read = Columns.of(schema, labels).instead(without=[HOUR_OF_DAY], plus=[HOUR])
    dialect = Dialect(quote=None)
    base = TextSource(files, schema, dialect, labels=labels, limit=limit, trouble=trouble, columns=read)
    return Derived(base, schema, _with_hour_of_day)


def _with_hour_of_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    seconds, _ = times(batch[HOUR], TIME)
    hours = pc.hour(pa.array(seconds, pa.timestamp("s")))
    return pa.RecordBatch.from_arrays([*batch.columns, hours], names=[*batch.schema.names, HOUR_OF_DAY])
