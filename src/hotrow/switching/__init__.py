"""When to change between Sync and GBA: a pure controller that predicts both, with hysteresis and a reason."""

from hotrow.switching.auto import Auto
from hotrow.switching.controller import Controller, Observation
from hotrow.switching.decision import Decision
from hotrow.switching.pilot import Pilot
from hotrow.switching.prediction import BatchTime, Costs, ModeName, Prediction, expected_maximum, predict

__all__ = [
    "Auto",
    "BatchTime",
    "Controller",
    "Costs",
    "Decision",
    "ModeName",
    "Observation",
    "Pilot",
    "Prediction",
    "expected_maximum",
    "predict",
]
