"""The script of test_checkpoint_kills.py: processes that train and save are killed, and what they leave is loaded.

Arguments: kills, seed, a folder, settings of the table as JSON. A child trains, writes a digest of all rows and of the
model under the number of the step, begins to save it in the background, and trains on. Its parent kills it at a random
moment, loads the newest checkpoint and compares the digest of what it loaded. The next child continues from there.
"""

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import hotrow as hr
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint, exists, numbers_in
from hotrow.checkpoint.rows import take_rows
from hotrow.trainer import Trainer

KEYS, SAMPLES, BATCHES, KEEP = 3000, 64, 4, 2
FULL_EVERY = 3  # saves: the others are deltas
FIELDS = hr.InputShape(numbers=0, fields={"user": 4})


def trainer(settings: dict[str, Any]) -> Trainer:
    torch.manual_seed(0)
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.1), **settings)
    return hr.Trainer(hr.models.build("lr", FIELDS), table, global_batch=SAMPLES, mode=hr.Sync(look_ahead=0), threads=1)


def batches(life: int, step: int) -> list[hr.data.Batch]:
    """Those that follow a step: a child that continues draws others than the one that was killed."""
    rng = np.random.default_rng((life, step))
    made = []
    for _ in range(BATCHES):
        ids = hr.data.FeatureBlock("default", "one", ("user",), rng.integers(0, KEYS, SAMPLES))
        labels = rng.integers(0, 2, (SAMPLES, 1)).astype(np.float32)
        made.append(hr.data.Batch((ids,), np.zeros((SAMPLES, 0), np.float32), labels=labels))
    return made


def digest(made: Trainer) -> str:
    """Of counters, model and rows, these in the order of their keys."""
    found = hashlib.sha256(f"{made.step} {made.samples}".encode())
    for tensor in made.model.state_dict().values():
        found.update(tensor.numpy().tobytes())
    for chunk in made.tables.tiers["default"].export():
        order = np.argsort(chunk.keys)
        ordered = take_rows(chunk, order)
        columns: list[NDArray[Any]] = [ordered.keys, ordered.values, ordered.state, *ordered.fields.values()]
        for column in columns:
            found.update(column.tobytes())
    return found.hexdigest()


def train(settings: dict[str, Any], folder: Path, life: int, pipe: int) -> None:
    """From the newest checkpoint on, until it is killed."""
    made, saves = trainer(settings), 0
    if exists(folder / "saved"):
        made.load(folder / "saved")
    while True:
        list(made.fit(batches(life, made.step)))
        # A step of a later life may have other rows: the name has both, and `about` says which one was saved.
        (folder / "digests" / f"{life}-{made.step}").write_text(digest(made))
        made.save_in_background(folder / "saved", keep=KEEP, delta=saves % FULL_EVERY != 0, life=life)
        saves += 1
        os.write(pipe, b".")


def killed_after(settings: dict[str, Any], folder: Path, life: int, saves: int, seconds: float) -> int:
    """Kill a child some time after it has begun so many saves; how many it had begun."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            train(settings, folder, life, writing)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writing)
    begun = 0
    while begun < saves and (word := os.read(reading, saves - begun)):
        begun += len(word)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child failed by itself"
    while select.select([reading], [], [], 0)[0] and (word := os.read(reading, 64)):
        begun += len(word)
    os.close(reading)
    return begun


def check(settings: dict[str, Any], folder: Path, least_step: int) -> SavedCheckpoint:
    """Verify and load the newest checkpoint."""
    saved = folder / "saved"
    found = SavedCheckpoint.open(saved)
    assert list(found.faults()) == []
    made = trainer(settings)
    made.load(saved)
    assert made.step >= least_step, f"step {made.step} after {least_step}"
    expected = (folder / "digests" / f"{found.manifest.about['life']}-{made.step}").read_text()
    assert digest(made) == expected, f"other rows than those of step {made.step}"
    made.close()
    return found


def main(kills: int, seed: int, folder: Path, settings: dict[str, Any]) -> None:
    (folder / "digests").mkdir()
    generator = random.Random(seed)
    place = Place.of(folder / "saved")
    step, begun, unfinished, deltas = 0, 0, 0, 0
    for life in range(kills):
        begun += killed_after(settings, folder, life, generator.randint(1, 5), generator.uniform(0, 0.03))
        unfinished += len(place.folders()) > len(numbers_in(place))
        if not numbers_in(place):  # the first save of all was not finished
            assert step == 0
            continue
        found = check(settings, folder, step)
        step = found.manifest.counters["step"]
        deltas += found.manifest.kind == "delta"
    print(f"{kills} kills, {begun} saves begun, {unfinished} cut off by a kill, {deltas} deltas loaded, step {step}")
    assert unfinished > 0, "no kill came during a save"
    assert deltas < kills
    assert deltas or kills < 50, "a few kills may all hit full checkpoints"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
