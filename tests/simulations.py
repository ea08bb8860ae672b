"""Small simulations whose outcomes are known beforehand."""

from collections.abc import Mapping
from typing import Any

from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.study import Simulation

# Four workers, a batch of 10 samples takes a second; worker 0 takes three.
UNEVEN: dict[str, Any] = {
    "run": {"samples": 3_000},
    "cluster": {
        "workers": 4,
        "local_batch": 10,
        "speeds": {"sample_s": 0.1, "stragglers": [{"workers": [0], "factor": 3.0}]},
    },
    "modes": {"sync": {}, "gba": {}},
}
TRAINED: dict[str, Any] = {
    "run": {"work": "train", "seed": 5},
    "cluster": {"workers": 4, "local_batch": 16, "speeds": {"sample_s": 0.01}},
    "modes": {"sync": {}},
    "hyper": {"one": {"dense": {"optimizer": {"name": "sgd", "lr": 0.1}}, "rows": {"name": "sgd", "lr": 0.2}}},
    "data": {"format": "synthetic", "rows": 960, "test_rows": 500, "features": 3, "numbers": 2, "ids": 200},
    "model": {"name": "deepfm", "hidden": [8]},
    "tables": {"default": {"dim": 5}},
}


def changed(document: Mapping[str, Any], **sections: Mapping[str, Any]) -> dict[str, Any]:
    """The document with fields of its sections replaced."""
    return {**document, **{name: {**document.get(name, {}), **fields} for name, fields in sections.items()}}


def config(document: Mapping[str, Any] = UNEVEN, **sections: Mapping[str, Any]) -> SimulationConfig:
    return SimulationConfig(**changed(document, **sections))


def outcomes(simulated: SimulationConfig, *labels: str, pictured: bool = False) -> dict[str, Outcome]:
    """All modes, to their end."""
    simulation = Simulation(simulated, labels, pictured=pictured)
    for _ in simulation:
        pass
    return {each.label: each for each in simulation.outcomes}
