"""The example of a Kafka topic as a source, with a plain object in the consumer's place."""

import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hotrow.data import Loader
from hotrow.data.keys import Keyspace
from hotrow.data.schema import Number, Schema
from hotrow.data.source import ArrowSource

SCHEMA = Schema(label="label", numbers=[Number(column="price")], ids=["user", "item"], time="time")


@dataclass(frozen=True)
class Record:
    value: bytes


@dataclass
class Topic:
    """Hands out messages as a consumer does: by partition, a few at a time, sometimes none."""

    messages: list[bytes]
    polls: list[int] = field(default_factory=list)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[str, list[Record]]:
        self.polls.append(timeout_ms)
        if len(self.polls) % 2 == 0:
            return {}
        count = max_records or 1
        taken, self.messages = self.messages[:count], self.messages[count:]
        return {"part": [Record(each) for each in taken]} if taken else {}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[3] / "examples" / "kafka_source.py"
    spec = importlib.util.spec_from_file_location("kafka_source", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def message(row: int, **change: Any) -> bytes:
    whole = {"label": row % 2, "user": f"u{row}", "item": row, "price": 1.5 * row, "time": 1_600_000_000 + row}
    return json.dumps({**whole, **change}).encode()


def test_messages_train_like_any_other_rows(example: ModuleType) -> None:
    messages = [message(row) for row in range(10)]
    messages[4:4] = [b"no json", b"[1, 2]", message(99, price="dear")]
    topic = Topic(messages)
    source = ArrowSource(lambda: example.batches(topic, rows=3, wait_ms=7), SCHEMA, limit=3, name="clicks")
    batches = [batch for _, batch in Loader(source, batch=4)]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    keys = Keyspace(SCHEMA).keys("item", list(range(4)))
    assert batches[0].parts[0].keys.reshape(4, 2)[:, 1].tolist() == keys.tolist()
    assert batches[2].numbers[:, 0].tolist() == [12.0, 13.5]
    assert [fault.line for fault in source.trouble.first] == [5, 6, 7]
    assert set(topic.polls) == {7}
    assert len(topic.polls) >= example.IDLE_POLLS


def test_kafka_itself_is_needed_only_to_connect(example: ModuleType) -> None:
    if importlib.util.find_spec("kafka") is not None:
        pytest.skip("kafka-python is installed: connecting would need a broker")
    with pytest.raises(ModuleNotFoundError, match="kafka"):
        example.consumer("clicks", "localhost:9092")
