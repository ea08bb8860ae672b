"""What cannot be is refused before a cluster is started, with the field, its value and a remedy."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.errors import SegmentError
from hotrow.modes import Hybrid
from hotrow.runtime.ray import connection
from hotrow.runtime.settings import Resources
from hotrow.store import RamTier
from hotrow.store.shards import share_of
from integration.on_ray.small_cluster import DIM, Net, trainer_of

pytestmark = pytest.mark.usefixtures("one_ray")


@pytest.mark.parametrize(
    ("engine", "settings", "told"),
    [
        ({"trainers": 2}, {"workers": 3}, r"workers=3: .*the trainers are the workers, and there are 2"),
        ({"values": {"nobody": "fp32"}}, {}, r"engine.values: there is no table '?nobody'?: there are '?default'?"),
        ({"security": "off", "bind": "node"}, {}, r"engine.bind='node', security='off': .*take 'key' or 'curve'"),
        ({"address": "127.0.0.1:1"}, {}, r"engine.address='127.0.0.1:1': .*connected to the Ray at .* already: leave"),
        ({"trainers": 0}, {}, r"trainers"),
        ({"trainer": {"gpus": 0.5}}, {}, r"trainer.gpus=0.5: a trainer needs a device of its own: give 0 or 1"),
        ({"delay_s": -1.0}, {}, r"delay_s"),
        ({"name": "slurm"}, {}, r"engine=.*slurm.*there are local, ray"),
    ],
)
def test_what_cannot_be_is_refused_at_once(engine: dict[str, Any], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(hr.ConfigError, match=told):
        trainer_of({"name": "ray", **engine}, **settings)  # type: ignore[arg-type]


def test_trainers_that_cannot_share_a_global_batch_are_refused() -> None:
    told = r"trainers=2: in hybrid every trainer takes a share of the 1 local batches .*: take 1 or fewer"
    with pytest.raises(hr.ConfigError, match=told):
        trainer_of(hr.Ray(trainers=2), local_batch=16, mode=Hybrid())


def test_roles_that_fit_nowhere_are_refused_with_what_they_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PLACING_S", 1.0)
    told = r"Ray found no resources within 1 s for 1 shards .* 1 trainers of \{'CPU': 4000.*: request less, or add"
    with pytest.raises(hr.ConfigError, match=told):
        trainer_of(hr.Ray(trainer=Resources(cpus=4000)))


NOBODY = """
import hotrow as hr
from integration.on_ray.small_cluster import trainer_of
try:
    trainer_of(hr.Ray(address="127.0.0.1:1"))
except hr.ConfigError as error:
    print("told:", error)
"""


def test_an_address_where_no_ray_is_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", NOBODY], capture_output=True, text=True, timeout=240)
    assert "told: engine.address='127.0.0.1:1': no Ray answers there" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_a_shard_refuses_rows_of_an_earlier_run_that_the_driver_could_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(), segment=hr.Segment(run="dead", directory=tmp_path))
    tier = RamTier(share_of(table, 0, 1))
    tier.put(np.array([7]), np.ones((1, DIM), np.float32))
    tier.close(leave=True)
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr("hotrow.runtime.open_backend.check_no_rows", lambda _: None)  # as on another machine
    told = rf"^shard 0: segment {left}: holds .* of rows .* hotrow segments remove {left}$"
    with pytest.raises(SegmentError, match=told):
        hr.Trainer(Net(), table, engine=hr.Ray())
    with closing(RamTier(share_of(table, 0, 1))) as found:
        assert len(found) == 1
