"""Roles that join and leave a run on a cluster, for its user. All of this may be called from any thread."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from hotrow.errors import ConfigError, InputError
from hotrow.runtime import TrainingLoop
from hotrow.runtime.membership import ScaleRequest

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.runtime.ray.cluster import RayCluster
    from hotrow.transport.server import RpcServer

Kind: TypeAlias = Literal["trainer", "embedding worker"]


def kind_of(text: str) -> Kind:
    """What joins, from its name."""
    if text not in get_args(Kind):
        raise ConfigError(f"kind={text!r}: must be 'trainer' or 'embedding worker'; shards hold rows, and stay")
    return cast(Kind, text)


class RoleScaling:
    """Who takes part in a run. Every change is told as a remark."""

    def __init__(self, loop: TrainingLoop, cluster: "RayCluster | None", say: Callable[[str], None]) -> None:
        self._loop, self._there, self._say = loop, cluster, say

    def join(self, kind: Kind) -> str:
        """One more; gives its name. A trainer is begun on when the engine makes its next step."""
        cluster = self._cluster()
        if kind_of(kind) == "embedding worker":
            name = str(cluster.join_embedding_worker())
            self._say(f"{name} takes part")
            return name
        self._loop.check_scaling(ScaleRequest("", comes=True))  # before anything is started
        request = ScaleRequest(str(cluster.join_trainer()), comes=True)
        request.done.add_done_callback(partial(self._tell, f"{request.name} takes part", f"{request.name} is let go"))
        self._loop.scale(request)
        return request.name

    def leave(self, name: str) -> "Future[None]":
        """One less: it gets no more batches, and is done when it has stopped."""
        cluster = self._cluster()
        roles = cluster.facts().roles
        role = next((each for each in roles if each == name), None)
        if role is None or role.kind == "shard":
            stays = "there is no such role" if role is None else "shards hold rows, and stay"
            raise InputError(
                f"{name!r}: {stays}; there are: {', '.join(each for each in roles if each.kind != 'shard')}"
            )
        if role.kind == "trainer":
            request = ScaleRequest(name, comes=False)
            self._loop.check_scaling(request)
            left = request.done
            self._loop.scale(request)
        else:
            left = cluster.leave_embedding_worker(name)
        left.add_done_callback(partial(self._tell, f"{name} has left", f"{name} stays"))
        return left

    def listen(self) -> "RpcServer | None":
        """Where the run itself can be asked, under the key of its roles; None in one process."""
        return None if self._there is None else self._there.listen("run")

    def _cluster(self) -> "RayCluster":
        if self._there is None:
            raise ConfigError("engine='local': workers of one process neither join nor leave: train with hotrow.Ray()")
        return self._there

    def _tell(self, done: str, refused: str, future: "Future[None]") -> None:
        fault = future.exception()
        self._say(done if fault is None else f"{refused}: {fault}")
