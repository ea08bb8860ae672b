"""Who has not the key can read, write and stop nothing, and the run goes on to the result it would have had."""

from concurrent.futures import TimeoutError as TooLate

import msgspec
import numpy as np
import pytest
import zmq

import hotrow as hr
from hotrow.errors import HotrowError
from hotrow.trainer import Progress
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Clear, Exchange, Export, GiveDense, Message, Query, Stop
from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId
from integration.on_ray.small_cluster import asked, batches, joined, largest_difference, losses, trainer_of

pytestmark = pytest.mark.usefixtures("one_ray")

WISHES: list[Message] = [
    Stop(),
    Query("status"),
    Export("default", 0, 100),
    Clear("default"),
    GiveDense(True),
    Exchange(0),
]


def say_without_a_key(address: str) -> int:
    """Every wish as bare frames, framed in several ways; gives how many answers came that were no refusal to talk."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        for wish in WISHES:
            header = msgspec.msgpack.encode(wish)
            socket.send(header)
            socket.send_multipart([b"", header])
            socket.send_multipart([bytes(16), header, b""])
        answers = 0
        while socket.poll(300):
            answers += len(socket.recv_multipart()) > 1
    return answers


def ask_with_another_key(address: str) -> None:
    with RpcClient(security="key", key=ClusterKey.generate()) as wire:
        wire.connect("it", address)
        for wish in WISHES:
            with pytest.raises((HotrowError, TooLate)):
                wire.request("it", wish).result(timeout=0.3)


def test_strangers_get_nothing_and_change_nothing() -> None:
    trainer = trainer_of(hr.Ray(trainers=2, shards=2))
    assert trainer.cluster is not None
    places = trainer.cluster.roles
    assert {name: place.address.rpartition(":")[0] for name, place in places.items()} == dict.fromkeys(
        ["shard 0", "shard 1", "trainer 0", "trainer 1"], "tcp://127.0.0.1"
    )
    data, found = batches(80, 8), []
    for report in trainer.fit(data):
        if isinstance(report, Progress):
            found.append(report.loss)
            if report.step == 10:
                for place in places.values():
                    assert say_without_a_key(place.address) == 0
                ask_with_another_key(places[RoleId("shard", 0)].address)
                ask_with_another_key(places[RoleId("trainer", 1)].address)
    local = trainer_of("local")
    np.testing.assert_allclose(found, losses(local.fit(joined(data, 16))), rtol=0, atol=1e-5)
    assert largest_difference(trainer, local) < 1e-4
    figures = asked(trainer, "shard 0")
    assert sum(count for name, count in figures.items() if name.startswith("wire.refused_")) > 0
    local.close()
    trainer.close()
