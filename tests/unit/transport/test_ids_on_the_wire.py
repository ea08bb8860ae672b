"""Ids come out of their frames as they went in, in fewer bytes where they repeat; what does not fit is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.transport.ids import grant_of, pack_ids, plain_bytes, sample_id, unpack_ids, worker_of
from hotrow.transport.messages import Coded, IdPart


def views(frames: list[NDArray[Any]]) -> list[memoryview]:
    return [memoryview(frame.tobytes()) for frame in frames]


def part_of(kind: Any, samples: int, features: int, distinct: int, seed: int, most: int = 4) -> FeatureBlock:
    chance = np.random.default_rng(seed)
    known = chance.integers(-(2**63), 2**63 - 1, max(1, distinct))
    names = tuple(f"f{at}" for at in range(features))
    if kind == "one":
        return FeatureBlock("a", kind, names, known[chance.integers(0, len(known), samples * features)])
    lengths = chance.integers(0, most, samples * features)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return FeatureBlock("a", kind, names, known[chance.integers(0, len(known), int(bounds[-1]))], bounds, "sum")


def batch_of(part: FeatureBlock, samples: int) -> Batch:
    return Batch((part,), np.empty((samples, 0), np.float32))


def come_out(part: FeatureBlock, samples: int) -> FeatureBlock:
    heads, frames = pack_ids(batch_of(part, samples))
    return unpack_ids(samples, heads, views(frames)).parts[0]


@given(
    st.sampled_from(["one", "bags", "sequence"]),
    st.integers(0, 40),
    st.integers(1, 3),
    st.sampled_from([1, 3, 10_000]),
    st.integers(0, 10_000),
)
def test_ids_come_out_as_they_went_in(kind: str, samples: int, features: int, distinct: int, seed: int) -> None:
    part = part_of(kind, samples, 1 if kind == "sequence" else features, distinct, seed)
    back = come_out(part, samples)
    assert (back.table, back.kind, back.features, back.pooling) == (part.table, part.kind, part.features, part.pooling)
    assert (back.bounds is None) == (part.bounds is None)
    if part.bounds is None or back.bounds is None or kind == "sequence":
        np.testing.assert_array_equal(back.keys, part.keys)
    else:  # a bag's ids have no order
        np.testing.assert_array_equal(back.bounds, part.bounds)
        for start, stop in zip(part.bounds[:-1], part.bounds[1:], strict=True):
            assert sorted(back.keys[start:stop]) == sorted(part.keys[start:stop])
    if part.bounds is not None:
        np.testing.assert_array_equal(back.bounds, part.bounds)


@pytest.mark.parametrize(("samples", "width"), [(65_535, 2), (65_536, 4)])
def test_samples_are_two_bytes_up_to_65_535_of_them(samples: int, width: int) -> None:
    part = FeatureBlock("a", "one", ("x",), np.arange(samples) % 3)
    heads, frames = pack_ids(batch_of(part, samples))
    assert [each.form for each in heads[0].coded] == ["counted"]
    assert frames[2].nbytes == width * samples
    np.testing.assert_array_equal(unpack_ids(samples, heads, views(frames)).parts[0].keys, part.keys)


@pytest.mark.parametrize(("longest", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_lengths_are_as_wide_as_the_longest_needs(longest: int, width: int) -> None:
    part = FeatureBlock("a", "sequence", ("w",), np.zeros(longest, np.int64), np.array([0, 0, longest]))
    heads, frames = pack_ids(batch_of(part, 2))
    assert heads[0].lengths == width
    assert frames[3].nbytes == 2 * width
    np.testing.assert_array_equal(unpack_ids(2, heads, views(frames)).parts[0].bounds, part.bounds)


@pytest.mark.parametrize(("distinct", "width"), [(65_536, 2), (65_537, 4)])
def test_places_of_a_sequence_are_two_bytes_up_to_65_536_keys(distinct: int, width: int) -> None:
    keys = np.concatenate([np.arange(distinct)] * 4)
    part = FeatureBlock("a", "sequence", ("w",), keys, np.array([0, len(keys)]))
    heads, frames = pack_ids(batch_of(part, 1))
    assert heads[0].coded[0] == Coded("placed", len(keys), distinct)
    assert frames[2].nbytes == width * len(keys)
    np.testing.assert_array_equal(unpack_ids(1, heads, views(frames)).parts[0].keys, keys)


def test_each_feature_takes_the_smaller_form() -> None:
    samples = 1_000
    few, all_different = np.arange(samples) % 7, np.arange(samples)
    part = FeatureBlock("a", "one", ("few", "many"), np.stack([few, all_different], axis=1).reshape(-1))
    heads, frames = pack_ids(batch_of(part, samples))
    assert [each.form for each in heads[0].coded] == ["counted", "plain"]
    assert sum(frame.nbytes for frame in frames) == 7 * (8 + 2) + 2 * samples + 8 * samples
    assert plain_bytes(heads) == 16 * samples


def test_a_key_that_is_more_often_there_than_two_bytes_tell() -> None:
    part = FeatureBlock("a", "bags", ("x",), np.full(65_536, 5), np.array([0, 65_536]), "sum")
    heads, frames = pack_ids(batch_of(part, 1))
    assert heads[0].counts == 4
    np.testing.assert_array_equal(unpack_ids(1, heads, views(frames)).parts[0].keys, part.keys)
    less = FeatureBlock("a", "bags", ("x",), np.full(65_535, 5), np.array([0, 65_535]), "sum")
    assert pack_ids(batch_of(less, 1))[0][0].counts == 2


def changed(head: IdPart, **fields: Any) -> tuple[IdPart]:
    return (msgspec.structs.replace(head, **fields),)


def test_what_does_not_fit_its_header_is_refused() -> None:
    heads, frames = pack_ids(batch_of(part_of("bags", 20, 2, 3, 1), 20))
    good, head = views(frames), heads[0]
    assert len(unpack_ids(20, heads, good)) == 20
    with pytest.raises(InputError, match="3 frames came for 1 parts"):
        unpack_ids(20, heads, good[:-1])
    with pytest.raises(InputError, match="keys of 'f0': the frame has"):
        unpack_ids(20, heads, [good[0][8:], *good[1:]])
    with pytest.raises(InputError, match="1 columns of ids came for 2 features"):
        unpack_ids(20, changed(head, coded=head.coded[:1]), good)
    with pytest.raises(InputError, match="are no 'one' of 20 samples"):
        unpack_ids(20, changed(head, kind="one"), good)
    with pytest.raises(InputError, match="2 features"):
        unpack_ids(20, changed(head, kind="sequence"), good)
    samples = np.frombuffer(good[2], np.uint16).copy()
    samples[0] = 20
    with pytest.raises(InputError):
        unpack_ids(20, heads, [good[0], good[1], memoryview(samples.tobytes()), good[3]])
    counts = np.frombuffer(good[1], np.uint16).copy()
    counts[0] += 1
    with pytest.raises(InputError):
        unpack_ids(20, heads, [good[0], memoryview(counts.tobytes()), *good[2:]])


def test_bags_of_one_that_hold_two_or_none_are_refused() -> None:
    heads, frames = pack_ids(batch_of(FeatureBlock("a", "one", ("x",), np.arange(20) % 2), 20))
    samples = np.frombuffer(views(frames)[2], np.uint16).copy()
    samples[0] = samples[1]
    with pytest.raises(InputError, match="20 ids do not fill the bags"):
        unpack_ids(20, heads, [*views(frames)[:2], memoryview(samples.tobytes()), views(frames)[3]])


def test_places_and_lengths_that_lead_out_of_a_sequence_are_refused() -> None:
    heads, frames = pack_ids(batch_of(part_of("sequence", 20, 1, 3, 1), 20))
    good = views(frames)
    assert heads[0].coded[0].form == "placed"
    places = np.frombuffer(good[2], np.uint16).copy()
    places[-1] = heads[0].coded[0].unique
    with pytest.raises(InputError, match="place 3 of a sequence: there are 3 keys"):
        unpack_ids(20, heads, [*good[:2], memoryview(places.tobytes()), good[3]])
    lengths = np.frombuffer(good[3], np.uint8).copy()
    lengths[0] += 1
    with pytest.raises(InputError, match="do not fill the bags"):
        unpack_ids(20, heads, [*good[:3], memoryview(lengths.tobytes())])


@given(st.integers(0, 255), st.integers(0, 2**56 - 1))
def test_a_sample_id_names_its_worker_in_its_first_byte(worker: int, grant: int) -> None:
    sample = sample_id(worker, grant)
    assert sample.to_bytes(8, "big")[0] == worker
    assert (worker_of(sample), grant_of(sample)) == (worker, grant)


@pytest.mark.parametrize(("worker", "grant"), [(256, 0), (-1, 0), (0, 2**56), (0, -1)])
def test_numbers_that_do_not_fit_a_sample_id_are_refused(worker: int, grant: int) -> None:
    with pytest.raises(InputError, match="must be below 256 and below 2\\^56"):
        sample_id(worker, grant)


NUMBERS = st.integers(0, 6) | st.sampled_from([255, 65_535, 65_536, 2**31])


@given(st.data())
def test_whatever_comes_is_a_batch_or_refused(data: st.DataObject) -> None:
    """Headers that decode but lie, over frames that fit or do not."""
    kind = data.draw(st.sampled_from(["one", "bags", "sequence"]))
    samples = data.draw(st.integers(0, 6))
    part = part_of(kind, samples, 1 if kind == "sequence" else 2, 3, data.draw(st.integers(0, 50)))
    (head,), arrays = pack_ids(batch_of(part, samples))
    frames = [bytearray(view) for view in views(arrays)]
    for _ in range(data.draw(st.integers(0, 3))):
        match data.draw(st.sampled_from(["coded", "kind", "count", "byte", "cut", "wide"])):
            case "coded" if head.coded:
                form: Any = data.draw(st.sampled_from(["plain", "counted", "placed"]))
                lie = Coded(form, data.draw(NUMBERS), data.draw(NUMBERS))
                head = msgspec.structs.replace(head, coded=(*head.coded[:-1], lie))
            case "kind":
                head = msgspec.structs.replace(head, kind=data.draw(st.sampled_from(["one", "bags", "sequence"])))
            case "count":
                samples = data.draw(st.integers(0, 12))
            case "wide":
                head = msgspec.structs.replace(head, counts=data.draw(st.sampled_from([2, 4])))
            case "byte" if frame := frames[data.draw(st.integers(0, 3))]:
                frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
            case "cut":
                del frames[data.draw(st.integers(0, 3))][-1:]
    try:
        found = unpack_ids(samples, (head,), [memoryview(bytes(frame)) for frame in frames]).parts[0]
    except InputError:
        return
    if found.bounds is None:
        assert len(found.keys) == samples * len(found.features)
    else:
        assert len(found.bounds) == samples * len(found.features) + 1
        assert (found.bounds[0], found.bounds[-1]) == (0, len(found.keys))
        assert (np.diff(found.bounds) >= 0).all()
