"""How large the batches of a run are, and whether a position in the data was counted in the same ones."""

from dataclasses import replace

from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.errors import ConfigError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.settings import Local, Ray
from hotrow.spec import whole_number
from hotrow.trainer.streams import Leases, PlainBatches


def facts_of(global_batch: int, workers: int, local_batch: int | None) -> RunFacts:
    """Local batches are a global one dealt to the workers, unless they are given."""
    workers = whole_number("workers", workers, 1, 4096)
    if local_batch is None:
        if global_batch % workers:
            near = next(count for count in range(workers, 0, -1) if global_batch % count == 0)
            message = f"workers={workers}: do not divide global_batch={global_batch:,} evenly"
            raise ConfigError(f"{message}: take {near}, or give local_batch")
        return RunFacts(workers, global_batch // workers, global_batch)
    return RunFacts(workers, whole_number("local_batch", local_batch, 1, global_batch), global_batch)


def checked_facts(mode: Mode, facts: RunFacts, engine: Local | Ray) -> RunFacts:
    """The facts with the most workers that may start; ConfigError where the mode does not support a number of them.

    Where trainers end steps together, a number that changes is at most that of the local batches in a global one.
    """
    if isinstance(engine, Ray) and engine.elastic:
        mode.check(replace(facts, workers=engine.trainers_fewest))
        if mode.dense != "server":
            facts = replace(facts, workers=max(engine.trainers_fewest, min(facts.workers, facts.parts)))
    mode.check(facts)
    return facts


def check_same_batches(position: Position, facts: RunFacts) -> None:
    """A position counts local batches."""
    if position.batch == facts.local_batch:
        return
    message = f"local_batch={facts.local_batch:,} (global_batch={facts.global_batch:,}, workers={facts.workers})"
    was = f"the position to resume from counts batches of {position.batch:,} samples"
    if facts.global_batch % position.batch:
        raise ConfigError(f"{message}: {was}: set global_batch and workers back, or start anew without the position")
    raise ConfigError(f"{message}: {was}: set local_batch={position.batch}, or start anew without the position")


def check_local_batches(stream: Leases, facts: RunFacts) -> None:
    """With several workers what is given are local batches: larger ones would silently make a larger global batch."""
    if facts.workers == 1:
        return
    if isinstance(stream, PlainBatches):
        stream.most = facts.local_batch
    elif isinstance(stream, Loader) and stream.position().batch != facts.local_batch:
        message = (
            f"the loader's batches are {stream.position().batch:,} samples, those of one worker {facts.local_batch:,}"
        )
        raise ConfigError(f"{message} (global_batch={facts.global_batch:,}): make it with batch={facts.local_batch}")
