"""Roles that are lost while a thread writes a checkpoint: the training loop handles them, and no other thread does."""

import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from hotrow import checkpoint
from hotrow.checkpoint.manifest import folder_of
from hotrow.checkpoint.place import Place
from hotrow.errors import FileError, HotrowError
from hotrow.modes import GBA
from hotrow.runtime.cluster import executor
from hotrow.runtime.cluster.remote_cut import RemoteCut
from hotrow.runtime.cluster.roles import WAKE_S
from hotrow.runtime.losses import RoleLost
from hotrow.runtime.state import RunState
from hotrow.trainer.saving import BackgroundSaves
from hotrow.transport.batches import pack_batch
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.messages import WriteCut
from hotrow.types import RoleId
from unit.runtime.cluster_threads import cluster
from unit.runtime.test_lost_shards import BATCHES, Run


class WritingShards:
    """Shards whose replies to a cut's thread come when a test lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Future[Answer]] = []
        request = RpcClient.request

        def held(client: RpcClient, name: str, message: Any, *given: Any, **more: Any) -> Future[Answer]:
            if not isinstance(message, WriteCut):
                return request(client, name, message, *given, **more)
            self.asked.append(Future())
            return self.asked[-1]

        monkeypatch.setattr(RpcClient, "request", held)

    def end(self) -> None:
        for each in self.asked:
            each.set_exception(HotrowError("the test has ended"))


def test_a_trainer_is_lost_between_the_check_of_a_batch_and_its_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, lost, packed, pack = RunState(), dict[RoleId, str](), list[int](), pack_batch
    with cluster(state, 2, 0, restarts=3) as there:
        there_lost, end = there.shards.lost, there.shards.end
        monkeypatch.setattr(there.shards, "lost", lambda: there_lost() | lost)
        monkeypatch.setattr(there.shards, "end", lambda name: (end(name), lost.pop(name, None)))
        run, shards = Run(there, state, GBA(), trainers=2), WritingShards(monkeypatch)
        place = Place.of(tmp_path)
        cut = there.site.begin_cut(place, delta=False)
        assert isinstance(cut, RemoteCut)

        def write() -> None:
            with pytest.raises(HotrowError, match="the test has ended"):
                cut.write(place.folder(folder_of(1)), lambda _: None)

        def slow_pack(*given: Any, **more: Any) -> Any:
            packed.append(1)
            if len(packed) == 9:
                lost[RoleId("trainer", 1)] = "it was killed"
                time.sleep(5 * WAKE_S)  # the thread that writes looks at the roles meanwhile
            return pack(*given, **more)

        monkeypatch.setattr(executor, "pack_batch", slow_pack)
        writes = threading.Thread(target=write, daemon=True)
        writes.start()
        try:
            run.train()
        finally:
            shards.end()
            writes.join()
        cut.close(saved=False)
        run.loop.take_remarks()
        assert sorted(run.done) == list(range(BATCHES))
        assert run.loop.statistics.counts["trainers_lost"] == 1


@pytest.mark.parametrize(
    ("leave", "error", "sentence"),
    [
        (True, FileError, "shard 1 does not hold the rows of that moment: it was started again"),
        (False, RoleLost, "shard 1 is gone: it was killed; it cannot be started again"),
    ],
    ids=["has its rows", "cannot start"],
)
def test_the_loop_that_waits_for_a_checkpoint_starts_a_lost_shard_again(
    leave: bool, error: type[HotrowError], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        Run(there, state, GBA(), trainers=1).train()
        restarts, acted = there.roles.shard_restarts, list[threading.Thread]()
        assert restarts is not None
        start, write = restarts._start, RemoteCut.write

        def noted(*given: Any, **more: Any) -> str:
            acted.append(threading.current_thread())
            return start(*given, **more)

        def killed(*given: Any) -> Any:
            there.shards.kill(1, leave=leave)
            return write(*given)

        monkeypatch.setattr(restarts, "_start", noted)
        monkeypatch.setattr(RemoteCut, "write", killed)
        saves = BackgroundSaves(there.site)
        content = checkpoint.Saved({"step": state.step, "samples": state.samples}, None, {})
        model, began = there.site._spec.model, time.monotonic()
        saving = saves.start(tmp_path, model, content, keep=1, delta=False, slowdown=1.0, began=began)
        with pytest.raises(error, match=sentence):
            saves.finish()
        assert saving.done
        assert acted == [threading.current_thread()]
        saves.close()
