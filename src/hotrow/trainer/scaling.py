"""Joins and leaves of roles on a cluster, as requested by a user. Thread-safe."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from hotrow.errors import ConfigError, InputError
from hotrow.runtime import TrainingLoop
from hotrow.runtime.membership import ScaleRequest
from hotrow.types import RoleId

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.runtime.ray.cluster import RayCluster
    from hotrow.transport.server import RpcServer

JoiningKind: TypeAlias = Literal["trainer", "embedding worker"]


def kind_of(text: str) -> JoiningKind:
    """Check the kind of a role that joins."""
    if text not in get_args(JoiningKind):
        raise ConfigError(f"kind={text!r}: must be 'trainer' or 'embedding worker'; shards hold rows, and stay")
    return cast(JoiningKind, text)


class RoleScaling:
    """The roles of a run. Every change becomes a remark in its reports."""

    def __init__(self, loop: TrainingLoop, cluster: "RayCluster | None", report: Callable[[str], None]) -> None:
        self._loop, self._there, self._report = loop, cluster, report

    def join(self, kind: JoiningKind) -> str:
        """Start one more role; returns its name. A trainer takes part from the next step on."""
        cluster = self._cluster()
        if kind_of(kind) == "embedding worker":
            name = str(cluster.join_embedding_worker())
            self._report(f"{name} takes part")
            return name
        return str(self.join_trainer().name)

    @property
    def trainers(self) -> tuple[RoleId, ...]:
        """Those that take part, or will at the next step."""
        return self._loop.members

    def check_join(self) -> None:
        """Raise where no trainer can join now. Changes nothing."""
        self._loop.check_join()

    def join_trainer(self) -> ScaleRequest:
        """Start one more trainer, which takes part from the next step on."""
        cluster = self._cluster()
        self._loop.check_join()  # before anything is started
        request = ScaleRequest(cluster.join_trainer(), joins=True)
        outcomes = f"{request.name} takes part", f"{request.name} could not join"
        request.done.add_done_callback(partial(self._report_end, *outcomes))
        self._loop.scale(request)
        return request

    def join_loader(self) -> None:
        """Start one more loader, in place of a lost one. It reads from the next step on."""
        self._report(f"{self._cluster().join_loader()} takes part")

    def leave(self, name: str) -> "Future[None]":
        """Let a role leave: it gets no more batches; the future is done when it has stopped."""
        cluster = self._cluster()
        roles = cluster.facts().roles
        role = next((each for each in roles if each == name), None)
        if role is None or role.kind == "shard":
            stays = "there is no such role" if role is None else "shards hold rows, and stay"
            raise InputError(
                f"{name!r}: {stays}; there are: {', '.join(each for each in roles if each.kind != 'shard')}"
            )
        if role.kind == "trainer":
            self._loop.check_leave(role)
            request = ScaleRequest(role, joins=False)
            left = request.done
            self._loop.scale(request)
        else:
            left = cluster.leave_embedding_worker(role)
        left.add_done_callback(partial(self._report_end, f"{name} has left", f"{name} stays"))
        return left

    def listen(self) -> "RpcServer | None":
        """The server for requests to the run itself, with the key of its roles; None in one process."""
        return None if self._there is None else self._there.listen("run")

    def _cluster(self) -> "RayCluster":
        if self._there is None:
            raise ConfigError("engine='local': workers of one process neither join nor leave: train with hotrow.Ray()")
        return self._there

    def _report_end(self, done: str, refused: str, future: "Future[None]") -> None:
        fault = future.exception()
        self._report(done if fault is None else f"{refused}: {fault}")
