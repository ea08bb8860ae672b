"""A sketch comes out of its frames as it went in; frames that do not fit their header are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.errors import InputError
from hotrow.metrics import quantiles, sketch
from hotrow.metrics.sketch import ScoreSketch
from hotrow.transport.envelope import decode, encode
from hotrow.transport.messages import CollectedScores
from hotrow.transport.sketches import pack_sketch, unpack_sketch


def views(frames: list[NDArray[np.generic]]) -> list[memoryview]:
    return [memoryview(frame.tobytes()) for frame in frames]


def sketch_of(samples: int, *, weights: bool, seed: int = 0) -> ScoreSketch:
    chance = np.random.default_rng(seed)
    made = ScoreSketch()
    for start in range(0, samples, 8):
        count = min(8, samples - start)
        scores = chance.normal(size=count).astype(np.float32)
        scores[chance.random(count) < 0.02] = np.inf
        made.add(chance.integers(0, 2, count), scores, chance.random(count) if weights else None)
    return made


@given(st.integers(0, 90), st.booleans(), st.integers(0, 100))
def test_a_sketch_comes_out_as_it_went_in(samples: int, weights: bool, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "PAIRS_MOST", 40)  # exact ones and folded ones
        patch.setattr(quantiles, "POINTS_MOST", 5)
        sent = sketch_of(samples, weights=weights, seed=seed)
        header, frames = pack_sketch(sent)
        received = decode(encode(header))
        assert isinstance(received, CollectedScores)
        back = unpack_sketch(received, views(frames))
        assert (len(back), back.not_finite, back.nan, back.exact) == (len(sent), sent.not_finite, sent.nan, sent.exact)
        assert back.exact == (samples <= 40)
        assert (back.metrics(), back.auc_error) == (sent.metrics(), sent.auc_error)


def test_frames_that_do_not_fit_the_header_are_refused() -> None:
    header, frames = pack_sketch(sketch_of(9, weights=True))
    for wrong in (frames[:-1], [*frames, frames[0]], [frames[0][:-1], *frames[1:]]):
        with pytest.raises(InputError, match="frame"):
            unpack_sketch(header, views(wrong))
