"""Requirements of a machine: `readings` queries the system, `findings` evaluates the readings without queries."""

from hotrow.doctor.findings import Finding, Level, findings, usable
from hotrow.doctor.readings import Gpu, Readings, read

__all__ = ["Finding", "Gpu", "Level", "Readings", "findings", "read", "usable"]
