"""How roles are, from two looks at them: what they have done, how fast, and who does not answer."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

pytest.importorskip("zmq")
pytest.importorskip("msgspec")

from hotrow.errors import InputError
from hotrow.run.cluster_status import RoleReply, RoleState, look, states
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.transport.messages import Done, QueryReply
from hotrow.transport.request import Request
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId

HERE = RoleAddress("tcp://127.0.0.1:1", "here", 1)
SHARD = {"rows.users": 30.0, "rows.items": 12.0, "samples": 9.0, "parked": 2.0, "waiting": 1.0}


def one(name: str, before: dict[str, float] | None, now: dict[str, float] | None, seconds: float = 2.0) -> RoleState:
    role = RoleId.parse(name)
    facts = ClusterFacts("off", None, {role: HERE})
    (state,) = states(
        facts, {role: RoleReply(before, 5.0)}, {role: RoleReply(now, 5.0 + seconds, "" if now else "silent")}
    )
    return state


def test_a_shard_tells_rows_of_all_tables_and_requests_a_second() -> None:
    before = SHARD | {"wire.requests": 100.0, "wire.bytes_in": 1.0, "wire.bytes_out": 2.0}
    now = before | {"wire.requests": 150.0, "wire.bytes_in": 10.0, "wire.bytes_out": 20.0}
    assert one("shard 0", before, now) == RoleState(
        "shard 0", HERE, rows=42.0, rate=25.0, rate_of="requests", bytes_in=10.0, bytes_out=20.0,
        parked=2.0, waiting=1.0,
    )  # fmt: skip


def test_a_trainer_tells_samples_a_second_and_the_share_it_computed() -> None:
    before = {"batches": 3.0, "samples": 300.0, "computed_s": 1.0, "bytes_sent": 4.0, "bytes_received": 5.0}
    now = before | {"batches": 5.0, "samples": 500.0, "computed_s": 2.5}
    state = one("trainer 1", before, now)
    assert (state.batches, state.rate, state.rate_of, state.busy) == (5.0, 100.0, "samples", 0.75)
    assert (state.bytes_in, state.bytes_out, state.rows, state.parked) == (5.0, 4.0, None, None)


def test_one_look_has_no_rates() -> None:
    assert one("shard 0", SHARD, SHARD, seconds=0.0).rate is None


def test_figures_that_fell_are_of_a_role_that_began_anew() -> None:
    assert one("shard 0", {"wire.requests": 9.0}, {"wire.requests": 8.0}).rate is None
    assert one("shard 0", {"wire.requests": 8.0}, {"wire.requests": 8.0}).rate == 0.0


def test_who_answers_again_after_a_silence_has_no_rate_yet() -> None:
    state = one("shard 0", None, SHARD)
    assert (state.rate, state.rows, state.trouble) == (None, 42.0, "")


def test_who_does_not_answer_says_why() -> None:
    assert one("shard 0", SHARD, None) == RoleState("shard 0", HERE, "silent")


@contextmanager
def role(name: str, key: ClusterKey, answer: object) -> Iterator[str]:
    """A server that gives the same answer to everybody; None: none."""
    held: list[Request] = []

    def handle(request: Request) -> None:
        if isinstance(answer, Exception):
            raise answer
        held.append(request)
        if answer is not None:
            request.reply(answer)  # type: ignore[arg-type]

    with RpcServer("tcp://127.0.0.1:*", security="key", key=key, name=name) as server:
        serving = threading.Thread(target=server.serve, args=(handle,))
        serving.start()
        try:
            yield server.address
        finally:
            for request in held:
                if not request.answered:
                    request.reply(Done())
            server.stop()
            serving.join()


def test_all_are_asked_and_the_silent_the_dead_and_the_strange_are_told_apart() -> None:
    key = ClusterKey.generate()
    answers = {
        "shard 0": QueryReply("shard 0", SHARD),
        "shard 1": None,
        "trainer 0": Done(),
        "trainer 1": InputError("not now"),
    }
    with ExitStack() as stack:
        addresses = {name: stack.enter_context(role(name, key, answer)) for name, answer in answers.items()}
        places = {RoleId.parse(name): RoleAddress(address, "here", 1) for name, address in addresses.items()}
        places[RoleId("trainer", 2)] = RoleAddress("tcp://127.0.0.1:9", "here", 1)  # nobody is there
        found = {each.role: each for each in look(ClusterFacts("key", key, places), over_s=0.01, wait_s=0.6)}
    assert found["shard 0"].rows == 42.0
    assert found["shard 1"].trouble == "no answer within 0.6 s"
    assert found["trainer 0"].trouble == "replied with Done: is it of another version?"
    assert found["trainer 1"].trouble == "trainer 1: not now"
    assert found["trainer 2"].trouble == "no answer within 0.6 s"


def test_with_another_key_nobody_answers() -> None:
    with role("shard 0", ClusterKey.generate(), QueryReply("shard 0", SHARD)) as address:
        facts = ClusterFacts("key", ClusterKey.generate(), {RoleId("shard", 0): RoleAddress(address, "here", 1)})
        (state,) = look(facts, over_s=0, wait_s=0.4)
    assert state.trouble == "no answer within 0.4 s"
