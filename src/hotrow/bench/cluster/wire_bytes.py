"""Bytes of a sample on the wire, as the roles count them in a run, beside plain ids and float32.

Plain is what each id of a sample would take: 8 bytes, its row as float32 on the way there, and its gradient on the way
back. All that shards (or embedding workers) received and sent counts, headers too, and the ids that trainers were sent.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.stretches import figures, trainer_of
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.data.config import DataConfig, open_source
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.runtime.settings import Ray
from hotrow.trainer import Trainer

LOCAL_BATCH = 4096
ID_BYTES, FLOAT_BYTES = 8, 4


def measure(plan: ClusterPlan, watch: BenchProgress) -> Figures:
    """On the Criteo sample, with rows sent to the trainers and with pooling in embedding workers."""
    keys = ("wire_rows_ratio", "wire_pooled_ratio", "wire_pooled_shards_ratio", "wire_rows_fp32_ratio")
    if plan.criteo is None:
        return dict.fromkeys(keys)
    watch.stage("bytes on the wire", 3)
    source = _sample(plan.criteo)
    ids = sum(len(part.keys) for _, batch in Loader(source, LOCAL_BATCH) for part in batch.parts)
    plain = ids * (ID_BYTES + 2 * FLOAT_BYTES * plan.dims[0])
    halves = Ray(trainers=2, shards=2, values="fp16-scaled")
    found: Figures = {}
    for key, engine in (("wire_rows_ratio", halves), ("wire_rows_fp32_ratio", Ray(trainers=2, shards=2))):
        counted = _counted(plan, source, engine)
        found[key] = (counted["shard"] + ID_BYTES * ids) / plain
        watch.tick()
    counted = _counted(plan, source, halves.model_copy(update={"embedding_workers": 1}))
    watch.tick()
    return found | {
        "wire_pooled_ratio": counted["embedding worker"] / plain,
        "wire_pooled_shards_ratio": counted["shard"] / plain,
    }


def _counted(plan: ClusterPlan, source: Source, engine: Ray) -> Mapping[str, float]:
    """By kind of role, the bytes of one pass over the data."""
    hidden, samples = plan.networks["narrow"], 2 * LOCAL_BATCH
    with closing(
        trainer_of(plan, hidden, engine, filled=False, global_batch=samples, local_batch=LOCAL_BATCH)
    ) as trainer:
        before = _bytes(trainer)
        for _ in trainer.fit(source):
            pass
        after = _bytes(trainer)
    return {kind: after[kind] - before[kind] for kind in after}


def _bytes(trainer: Trainer) -> dict[str, float]:
    return {
        kind: sum(
            each["wire.bytes_in"] + each["wire.bytes_out"] + each.get("id_bytes", 0) for each in figures(trainer, kind)
        )
        for kind in ("shard", "embedding worker")
    }


def _sample(path: Path) -> Source:
    return open_source(DataConfig(format="criteo", train=str(path)), str(path))
