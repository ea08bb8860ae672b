"""What an embedding worker keeps is bounded, taken once, and let go for a reason that is counted."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError, InputError
from hotrow.transport.errors import Busy
from hotrow.transport.ids import pack_ids, sample_id
from hotrow.transport.messages import Folded, LookUp, Taken
from hotrow.types import RoleId
from hotrow.worker.embedding import FLOAT_BYTES, ID_BYTES, OVERHEAD, BufferedBatch, BufferLimits, EmbeddingBuffers

DIMS = {"a": 4}
SMALL = OVERHEAD + 5 * (ID_BYTES + 4 * FLOAT_BYTES)  # a batch of five samples


def buffers(**bounds: Any) -> EmbeddingBuffers:
    return EmbeddingBuffers(RoleId("embedding worker", 3), DIMS, BufferLimits(**bounds))


def told(
    grant: int, samples: int = 5, worker: int = 0, part: FeatureBlock | None = None
) -> tuple[LookUp, list[memoryview]]:
    part = part or FeatureBlock("a", "one", ("x",), np.arange(samples))
    parts, frames = pack_ids(Batch((part,), np.empty((samples, 0), np.float32)))
    views = [memoryview(frame.tobytes()) for frame in frames]
    return LookUp(sample_id(3, grant), worker, 0, 0, False, samples, parts), views


def take(core: EmbeddingBuffers, grant: int, now: float = 0.0, **how: Any) -> BufferedBatch:
    kept = core.take(*told(grant, **how), now)
    assert kept is not None
    return kept


def test_samples_are_bounded_on_both_sides() -> None:
    core = buffers(samples=10)
    take(core, 1)
    take(core, 2)
    assert core.samples == 10
    with pytest.raises(Busy, match="2 batches of 10 samples are kept, and 1 more would pass the 10"):
        core.take(*told(3, samples=1), 0.0)
    assert (core.samples, core.figures()["busy"], core.figures()["refused"]) == (10, 1, 0)
    core.release([sample_id(3, 1)])
    take(core, 3)


def test_the_oldest_batch_is_taken_above_the_bounds_since_others_may_wait_for_it() -> None:
    core = buffers(samples=10)
    take(core, 5)
    take(core, 6)
    with pytest.raises(Busy):
        core.take(*told(7), 0.0)
    take(core, 4)
    assert core.samples == 15


def test_bytes_are_bounded_on_both_sides() -> None:
    core = buffers(bytes=2 * SMALL)
    take(core, 1)
    take(core, 2)
    assert core.nbytes == 2 * SMALL
    tight = buffers(bytes=2 * SMALL - 1)
    take(tight, 1)
    with pytest.raises(Busy, match="more would pass"):
        tight.take(*told(2), 0.0)
    assert (tight.nbytes, len(tight)) == (SMALL, 1)
    assert tight.find(sample_id(3, 2), 0.0) is None  # a refused batch may come again


def test_a_header_that_announces_too_much_is_refused_before_it_is_read() -> None:
    core = buffers(samples=10)
    message, _ = told(1, samples=11)
    with pytest.raises(InputError, match=r"a batch of 11 samples is more than the 10 .* take a smaller local batch"):
        core.take(message, [], 0.0)
    assert core.figures()["refused"] == 1


def test_padding_of_a_long_sequence_counts() -> None:
    part = FeatureBlock("a", "sequence", ("w",), np.arange(100), np.array([0, 100, 100, 100, 100, 100]))
    size = OVERHEAD + 100 * ID_BYTES + 5 * 100 * 4 * FLOAT_BYTES
    assert take(buffers(bytes=size), 1, part=part).nbytes == size
    with pytest.raises(InputError, match="bytes is more than"):
        buffers(bytes=size - 1).take(*told(1, part=part), 0.0)


def test_ids_and_gradients_that_come_again_are_taken_once() -> None:
    core = buffers()
    kept = take(core, 1)
    assert core.take(*told(1), 0.0) is None
    outcome = Folded((Taken(refused=2),))
    core.finish(kept, outcome)
    assert core.take(*told(1), 0.0) is None
    assert core.outcome(sample_id(3, 1)) == outcome
    assert (len(core), core.samples, core.nbytes) == (0, 0, 0)
    assert core.figures()["again"] == 2


def test_a_batch_that_is_gone_is_told_from_one_that_has_not_come() -> None:
    core = buffers(keep_s=10)
    assert core.find(sample_id(3, 1), 0.0) is None
    core.finish(take(core, 1), Folded(()))
    with pytest.raises(InputError, match="sample id 0x300000000000001: embedding worker 3 has dropped it"):
        core.find(sample_id(3, 1), 0.0)
    assert core.figures()["gone"] == 1


@pytest.mark.parametrize("later", [999, 1000])
def test_why_a_batch_is_gone_is_remembered_for_the_last_thousand(later: int) -> None:
    core = buffers()
    core.fail(take(core, 1), "shard 0 is lost")
    for grant in range(2, 2 + later):
        core.finish(take(core, grant), Folded(()))
    with pytest.raises(InputError, match="shard 0 is lost" if later == 999 else "its result is not kept any more"):
        core.find(sample_id(3, 1), 0.0)


def test_another_workers_sample_ids_are_refused() -> None:
    core = buffers()
    other = sample_id(4, 1)
    for ask in (lambda: core.find(other, 0.0), lambda: core.release([other])):
        with pytest.raises(InputError, match="is of embedding worker 4, not of embedding worker 3"):
            ask()


def test_release_frees_what_is_named() -> None:
    core = buffers()
    for grant in (1, 2, 3, 4):
        take(core, grant)
    assert [each.sample for each in core.release([sample_id(3, 1)])] == [sample_id(3, 1)]
    assert len(core.release([sample_id(3, grant) for grant in (1, 2, 4)])) == 2
    assert (len(core), core.samples, core.figures()["released"]) == (1, 5, 3)


def test_ids_that_come_after_their_release_are_not_kept() -> None:
    core = buffers()
    core.release([sample_id(3, 7)])
    assert core.take(*told(7), 0.0) is None
    assert len(core) == 0


def test_gradients_on_their_way_are_not_released_under_it() -> None:
    core = buffers(keep_s=10)
    kept = take(core, 1)
    kept.pushing = True
    assert core.release([kept.sample]) == []
    assert core.expire(1e6) == []
    core.finish(kept, Folded(()))
    assert len(core) == 0


def test_what_nobody_speaks_of_goes_after_its_time_and_not_before() -> None:
    core = buffers(keep_s=10)
    first, second = take(core, 1), take(core, 2)
    core.find(second.sample, 5.0)
    assert core.expire(9.9) == []
    assert core.expire(10.0) == [first]
    assert core.expire(14.9) == []
    assert core.expire(15.0) == [second]
    assert (core.samples, core.nbytes, core.figures()["expired"]) == (0, 0, 2)


def test_a_table_that_is_not_there_is_named() -> None:
    part = FeatureBlock("c", "one", ("x",), np.arange(5))
    with pytest.raises(ConfigError, match="table 'c' of a batch is missing: there are 'a'"):
        buffers().take(*told(1, part=part), 0.0)


def test_bytes_before_and_after_are_counted() -> None:
    core = buffers()
    take(core, 1, samples=100, part=FeatureBlock("a", "one", ("x",), np.zeros(100, np.int64)))
    assert core.figures()["ids_plain_bytes"] == 800
    assert core.figures()["ids_bytes"] == 8 + 2 + 200


STEPS = st.lists(st.tuples(st.sampled_from(["take", "finish", "fail", "release", "expire"]), st.integers(1, 6)))


@given(STEPS)
def test_whatever_happens_what_is_kept_adds_up(steps: list[tuple[str, int]]) -> None:
    core, twin, now = buffers(samples=20, keep_s=3), dict[int, BufferedBatch](), 0.0
    seen: set[int] = set()
    for act, grant in steps:
        now += 1
        kept = twin.get(grant)
        if act == "take" and (grant in seen or len(twin) < 4):
            found = core.take(*told(grant), now)
            assert (found is None) == (grant in seen)
            if found is not None:
                twin[grant] = found
            seen.add(grant)
        elif act == "release":
            core.release([sample_id(3, grant)])
            twin.pop(grant, None)
            seen.add(grant)
        elif act == "expire":
            gone = {each.sample for each in core.expire(now)}
            assert gone == {each.sample for each in twin.values() if now - each.touched_s >= 3}
            twin = {key: each for key, each in twin.items() if each.sample not in gone}
        elif kept is not None:
            core.finish(kept, Folded(())) if act == "finish" else core.fail(kept, "")
            del twin[grant]
        assert len(core) == len(twin)
        assert core.samples == 5 * len(twin) <= 20
        assert core.nbytes == sum(each.nbytes for each in twin.values())
    figures = core.figures()
    ends = sum(figures[name] for name in ("pushed", "failed", "released", "expired"))
    assert figures["batches"] == ends + figures["kept"]
