"""`hotrow bench cluster --part coordinator`: every grant is applied, on the messages of a cluster, without Ray."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow.bench.cluster import coordinator
from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.cli import app
from hotrow.modes import Mode
from hotrow.transport.messages import BatchReply, BatchRequest, Message, OrderResult, Perform

PLAN = replace(ClusterPlan().quick(), workers=7, granted=50, shards=3)


@pytest.mark.parametrize("mode", coordinator.MODES, ids=lambda mode: str(mode.name))
def test_every_batch_is_granted_once_and_applied_on_every_shard(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Message] = []
    answer = coordinator._reply

    def noting(message: Message) -> Message:
        seen.append(message)
        return answer(message)

    monkeypatch.setattr(coordinator, "_reply", noting)
    assert coordinator._batches_per_s(PLAN, mode) > 0
    granted = [message.grant for message in seen if isinstance(message, BatchRequest)]
    applied = [
        part.grant
        for message in seen
        if isinstance(message, Perform)
        for apply in message.applies
        for part in apply.parts
    ]
    assert granted == list(range(1, 58))
    assert sorted(applied) == sorted(granted * 3)


def test_both_sides_speak_the_protocol_of_a_cluster() -> None:
    rpc = coordinator._MemoryRpc()
    reply = rpc.request("shard 0", Perform(1, 5, ())).result().message
    assert reply == OrderResult(5)
    assert rpc.elsewhere_s > 0
    assert not isinstance(reply, BatchReply)


def test_the_command_measures_it_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ray(*_: object, **__: object) -> None:
        raise AssertionError("this part needs no Ray")

    monkeypatch.setattr("hotrow.bench.cluster.measured.own_ray", no_ray)
    out = tmp_path / "coordinator.json"
    command = ["bench", "cluster", "--part", "coordinator", "--quick", "--json", str(out)]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "coordinator alone, slowest token mode" in done.stdout
    found = json.loads(out.read_text())
    modes = [found[f"coordinator_{mode.name}_batches_per_s"] for mode in coordinator.MODES]
    assert found["coordinator_batches_per_s"] == min(modes) > 0
    assert {"commit", "machine", "versions", "job"} <= set(found)
