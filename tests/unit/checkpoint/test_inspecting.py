"""The figures of a checkpoint are those of its rows."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint.inspecting import TOP_ROWS, inspect_tables, inspection_document
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import take_rows
from hotrow.checkpoint.saving import Saved
from hotrow.store import RamTier, Rows

STEPS, BATCH = 12, 512


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RamTier, Path]:
    rng = np.random.default_rng(3)
    tier = RamTier(hr.Table(name="t", dim=4, last_seen=True))
    tier.find_or_init(np.arange(5000, 5010), samples=0)  # never updated
    for step in range(STEPS):
        keys = rng.zipf(1.3, BATCH) % 4000
        batch = tier.find_or_init(keys, samples=1024 * (step + 1))
        tier.apply(batch, rng.normal(size=(BATCH, 4)).astype(np.float32), step=step, samples=1024 * (step + 1))
    folder = tmp_path_factory.mktemp("inspected") / "c"
    about = Saved({"step": STEPS, "samples": 1024 * STEPS}, None, {})
    checkpoint.save(folder, nn.Linear(3, 2), None, {"t": tier}, about)
    return tier, folder


def test_figures_are_those_of_the_rows(trained: tuple[RamTier, Path]) -> None:
    tier, folder = trained
    found = SavedCheckpoint.open(folder)
    watched: list[int] = []
    document = inspection_document(found, inspect_tables(found, watch=watched.append))
    assert watched[-1] == len(tier)
    (rows,) = tier.export(100_000)
    norms, versions = np.linalg.norm(rows.values.astype(float), axis=1), rows.fields["version"]
    figures = document["tables"]["t"]
    assert figures["rows"] == figures["rows_in_manifest"] == len(tier) == sum(figures["shards"])
    assert figures["bytes"] == len(tier) * (8 + 4 * (4 + 4 + 3))
    assert (figures["dim"], figures["state_dim"], figures["optimizer"]["name"]) == (4, 4, "adagrad")
    for name, part in (("p0", 0), ("p10", 0.1), ("p50", 0.5), ("p99", 0.99), ("p100", 1)):
        assert figures["norm"][name] == pytest.approx(np.quantile(norms, part, method="inverted_cdf"), rel=1 / 128)
    assert figures["never_updated"] == 10
    assert figures["updates"]["sum"] == (versions - 1).sum()
    most = np.sort(versions - 1)[::-1]
    top = len(tier) // 10
    share = figures["update_share_of_top"]["0.1"]
    assert most[:top].sum() / most.sum() <= share <= most[: top + 1].sum() / most.sum()
    ages = STEPS - rows.fields["last_update"][versions > 1].astype(int)
    assert figures["steps_since_update"]["p100"] == ages.max()
    assert figures["steps_since_update"]["p50"] == np.quantile(ages, 0.5, method="inverted_cdf")
    assert figures["samples_since_seen"]["p100"] == 1024 * (STEPS - rows.fields["last_seen"].min())


def test_the_top_rows_have_the_most_updates(trained: tuple[RamTier, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tier, folder = trained
    (rows,) = tier.export(100_000)
    expected = sorted(
        zip(rows.fields["version"].tolist(), rows.keys.tolist(), strict=True), key=lambda e: (-e[0], e[1])
    )
    found = SavedCheckpoint.open(folder)
    pieces = [piece for chunk in found.rows("t") for piece in in_sevens(chunk)]  # the top is merged from many chunks
    monkeypatch.setattr(SavedCheckpoint, "rows", lambda *_: iter(pieces))
    top = inspect_tables(found)["t"].document()["top"]
    assert [(each["version"], each["key"]) for each in top] == expected[:TOP_ROWS]


def in_sevens(chunk: Rows) -> list[Rows]:
    places = np.arange(len(chunk.keys))
    return [take_rows(chunk, places[start : start + 7]) for start in range(0, len(places), 7)]


def test_dense_tensors_are_named_from_the_header_alone(trained: tuple[RamTier, Path]) -> None:
    found = SavedCheckpoint.open(trained[1])
    tensors = {each["name"]: each for each in inspection_document(found, {})["dense"]}
    assert tensors["model.weight"] == {"name": "model.weight", "type": "F32", "shape": [2, 3], "bytes": 24}


def test_a_header_that_is_damaged_is_told(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, nn.Linear(3, 2), None, {}, Saved({}, None, {}))
    file = tmp_path / "000001/dense.safetensors"
    for data, sentence in ((b"", "its header has 0 bytes"), (b"\x05" + bytes(7) + b"[1,2]", "not that of safetensors")):
        file.write_bytes(data)
        with pytest.raises(hr.InputError, match=f"dense.safetensors cannot be read: .*{sentence}"):
            inspection_document(SavedCheckpoint.open(tmp_path), {})
