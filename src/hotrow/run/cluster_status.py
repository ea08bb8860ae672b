"""The state of the roles of a run on a cluster, queried over the network. Queries change nothing."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotrow.errors import HotrowError
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.sizes import number_text
from hotrow.transport import check_installed
from hotrow.transport.errors import PeerLost
from hotrow.types import RoleId

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.transport.client import RpcClient

WAIT_S = 3.0  # for an answer


@dataclass(frozen=True, slots=True)
class RoleReply:
    """The reply of a role. Without figures it did not answer, and `trouble` is the reason."""

    figures: Mapping[str, float] | None
    at_s: float
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class RoleState:
    """The state of one role; None: this kind of role has no such figure."""

    role: str
    place: RoleAddress
    trouble: str = ""
    batches: float | None = None
    rows: float | None = None
    rate: float | None = None  # a second, between two looks: samples of a trainer, requests of others
    rate_of: str = ""
    busy: float | None = None  # share of that time in which a trainer computed
    bytes_in: float | None = None
    bytes_out: float | None = None
    parked: float | None = None  # pushes that wait for their step
    waiting: float | None = None  # requests that wait for an order


def look(facts: ClusterFacts, *, over_s: float, wait_s: float = WAIT_S) -> list[RoleState]:
    """All roles, looked at twice, `over_s` seconds apart; with 0 once, and then there are no rates."""
    with _talking(facts, wait_s) as wire:
        before = now = _heard(wire, facts.roles, wait_s)
        if over_s > 0:
            time.sleep(over_s)
            answering = [name for name, replies in before.items() if replies.figures is not None]
            now = before | _heard(wire, answering, wait_s)
    return states(facts, before, now)


def figures_of(facts: ClusterFacts, *, wait_s: float = WAIT_S) -> dict[RoleId, Mapping[str, float]]:
    """The figures of each role that answers."""
    with _talking(facts, wait_s) as wire:
        replies = _heard(wire, facts.roles, wait_s)
    return {name: each.figures for name, each in replies.items() if each.figures is not None}


@contextmanager
def _talking(facts: ClusterFacts, wait_s: float) -> "Iterator[RpcClient]":
    check_installed()
    from hotrow.transport.client import RpcClient
    from hotrow.transport.limits import RetryPolicy

    retry = RetryPolicy(first_s=wait_s / 4, most_s=wait_s / 2, give_up_s=wait_s)
    with RpcClient(security=facts.security, key=facts.key, retry=retry) as wire:
        for name, place in facts.roles.items():
            wire.connect(name, place.address)
        yield wire


def states(facts: ClusterFacts, before: Mapping[RoleId, RoleReply], now: Mapping[RoleId, RoleReply]) -> list[RoleState]:
    """The state of a role from two readings of its figures."""
    return [_state(name, place, before[name], now[name]) for name, place in facts.roles.items()]


def _heard(wire: "RpcClient", names: Iterable[RoleId], wait_s: float) -> dict[RoleId, RoleReply]:
    from hotrow.transport.faults import unexpected_reply
    from hotrow.transport.messages import Query, QueryReply

    asked = {name: wire.request(name, Query("status")) for name in names}
    until = time.monotonic() + wait_s
    replies = {}
    for name, answer in asked.items():
        try:
            reply = answer.result(max(0.0, until - time.monotonic())).message
        except (TimeoutError, PeerLost):
            replies[name] = RoleReply(None, time.monotonic(), f"no answer within {number_text(wait_s)} s")
        except HotrowError as error:
            replies[name] = RoleReply(None, time.monotonic(), str(error))
        else:
            figures = reply.figures if isinstance(reply, QueryReply) else None
            trouble = "" if figures is not None else unexpected_reply(reply)
            replies[name] = RoleReply(figures, time.monotonic(), trouble)
    return replies


def _state(role: RoleId, place: RoleAddress, before: RoleReply, now: RoleReply) -> RoleState:
    figures = now.figures
    if figures is None:
        return RoleState(role, place, now.trouble)
    unit = "samples" if "samples" in figures and role.kind in ("trainer", "loader") else "wire.requests"
    passed = now.at_s - before.at_s
    rate = busy = None
    if before.figures is not None and passed > 0:
        rate = _grown(unit, before.figures, figures, passed)
        busy = _grown("computed_s", before.figures, figures, passed)
    rows = [value for figure, value in figures.items() if figure.startswith("rows.")]
    return RoleState(
        role,
        place,
        batches=figures.get("batches"),
        rows=sum(rows) if rows else None,
        rate=rate,
        rate_of=unit.removeprefix("wire."),
        busy=busy,
        bytes_in=figures.get("wire.bytes_in", figures.get("bytes_received")),
        bytes_out=figures.get("wire.bytes_out", figures.get("bytes_sent")),
        parked=figures.get("parked"),
        waiting=figures.get("waiting"),
    )


def _grown(figure: str, before: Mapping[str, float], now: Mapping[str, float], seconds: float) -> float | None:
    """Growth per second; None where a role has no such figure, or restarted in between."""
    if figure not in before or figure not in now or now[figure] < before[figure]:
        return None
    return (now[figure] - before[figure]) / seconds
