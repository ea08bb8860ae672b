"""What Hotrow needs of a machine: `readings` asks the system, `findings` judges the answers and asks nothing."""

from hotrow.doctor.findings import Finding, Level, findings, usable
from hotrow.doctor.readings import Gpu, Readings, read

__all__ = ["Finding", "Gpu", "Level", "Readings", "findings", "read", "usable"]
