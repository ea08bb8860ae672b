"""Training rows from a Kafka topic: JSON messages become record batches, and those a source like any other.

    source = ArrowSource(lambda: batches(consumer("clicks", "localhost:9092"), rows=8192), schema)

The consumer is a KafkaConsumer of kafka-python, or any object with its `poll`. Messages that are no JSON object are
handed on as rows without values, so that the source counts them as malformed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

COLUMNS = ("label", "user", "item", "price", "time")
IDLE_POLLS = 10  # in a row without a message: then the topic is taken to be at its end


class Consumer(Protocol):
    def poll(self, timeout_ms: int = ..., max_records: int | None = ...) -> Mapping[Any, Sequence[Any]]: ...


def consumer(topic: str, servers: str) -> Consumer:
    """All messages of a topic from the first one on; `pip install kafka-python`."""
    import kafka  # type: ignore[import-not-found, unused-ignore]

    made: Consumer = kafka.KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    return made


def batches(consumer: Consumer, rows: int = 8192, wait_ms: int = 1000) -> Iterator[pa.RecordBatch]:
    """Record batches of at most `rows` messages, all columns as texts, until nothing comes any more."""
    idle = 0
    while idle < IDLE_POLLS:
        polled = consumer.poll(timeout_ms=wait_ms, max_records=rows)
        messages = [fields(record.value) for records in polled.values() for record in records]
        idle = 0 if messages else idle + 1
        if messages:
            yield pa.RecordBatch.from_pydict({name: texts(messages, name) for name in COLUMNS})


def fields(message: bytes) -> dict[str, Any]:
    try:
        found = json.loads(message)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def texts(messages: list[dict[str, Any]], name: str) -> pa.Array:
    values = [message.get(name) for message in messages]
    return pa.array([None if value is None else str(value) for value in values], pa.string())
