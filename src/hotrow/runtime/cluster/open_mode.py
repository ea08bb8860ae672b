"""A mode that runs on the trainers of a cluster, and how it begins on them."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from msgspec.structs import replace

from hotrow.modes import Mode
from hotrow.runtime.cluster.executor import RemoteExecutor
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.client import Answer
from hotrow.transport.messages import Begin
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True, eq=False)
class OpenMode:
    """State that exists only while a mode runs."""

    mode: Mode
    parameters: RemoteParameters
    executor: RemoteExecutor
    begun: Begin  # as sent to the first trainer


def begin_on_all(roles: Roles, begun: Begin, shares: Sequence[int], dense: Sequence[memoryview]) -> None:
    """Begin a mode on all trainers; `shares`: by rank, its batches of a step.

    WorkersLost where a trainer is lost, also after its reply: workers are numbered as they begin.
    """

    def begin() -> None:
        ranks = enumerate(roles.trainers)
        shared = [(rank, name, replace(begun, share=shares[rank])) for rank, name in ranks]
        sent = {name: send_begin(roles, own, rank, name, dense) for rank, name, own in shared}
        roles.answers_of_ranks(sent, begun.meeting)

    roles.surviving(begin)
    roles.check_all_left(len(shares))


def send_begin(roles: Roles, begun: Begin, rank: int, name: RoleId, dense: Sequence[memoryview]) -> Future[Answer]:
    """Begin a mode on one trainer."""
    return roles.rpc.request(name, replace(begun, rank=rank, seed=begun.seed + rank), dense)
