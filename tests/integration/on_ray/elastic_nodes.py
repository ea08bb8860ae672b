"""A run that begins with one trainer, gets a second with another node, and goes on when that node is drained.

Prints what it came to. Run as a program.
"""

import json
import tempfile
import time
from pathlib import Path

import ray
from ray._private import state
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

import hotrow as hr
from hotrow.modes import mode_of
from hotrow.runtime.ray.authentication import token_authentication
from hotrow.runtime.settings import Resources
from hotrow.trainer import Progress, Remark
from integration.on_ray.small_cluster import batches, check_settled, file_of, trainer_of

SAMPLES, LOCAL, EPOCHS_MOST = 1_600, 8, 200
DEADLINE_S = 30


def drain(node: str) -> None:
    """As a spot machine does that will end soon."""
    gcs = ray._private.worker.global_worker.gcs_client  # type: ignore[attr-defined]
    reason = autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION  # type: ignore[attr-defined]
    accepted, why = gcs.drain_node(node, reason, "the test", int((time.time() + DEADLINE_S) * 1000))
    assert accepted, why


def main() -> None:
    small = Resources(cpus=0.5)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        engine = hr.Ray(address=nodes.address, trainers=(1, 4), shards=1, bind="node", shard=small)
        trainer = trainer_of(engine, local_batch=LOCAL, mode=mode_of("sync"))
        counts, told = [len(trainer.scaling.trainers)], []
        added, drained, ended_at = None, False, None
        with tempfile.TemporaryDirectory() as folder:
            source = file_of(batches(SAMPLES // 8, 8), Path(folder) / "train.parquet")
            reports = trainer.fit(source, shuffle=64, epochs=EPOCHS_MOST)
            for report in reports:
                if isinstance(report, Remark):
                    told.append(report.sentence)
                if not isinstance(report, Progress):
                    continue
                if added is None:
                    added = nodes.add_node(num_cpus=1)
                if counts[-1] != trainer.facts.workers:
                    counts.append(trainer.facts.workers)
                if counts[-1] == 2 and not drained:
                    drain(added.node_id)
                    drained = True
                if counts == [1, 2, 1] and ended_at is None:
                    ended_at = trainer.samples + SAMPLES
                if trainer.samples == ended_at:
                    break
            del reports  # ends the fit
            position = trainer.position
        assert position is not None
        check_settled(trainer)
        print(
            json.dumps(
                {
                    "counts": counts,
                    "told": told,
                    "samples": trainer.samples,
                    "read": position.samples,
                    "statistics": trainer.statistics.counts,
                    "global_batch": trainer.facts.global_batch,
                    "draining": len(state.state.get_draining_nodes()),
                }
            )
        )
        trainer.close()
    finally:
        nodes.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    with token_authentication():
        main()
