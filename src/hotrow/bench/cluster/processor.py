"""Processor time of the processes that take part in a run."""

import os
from pathlib import Path

from hotrow.trainer import Trainer

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cores() -> int:
    """That this process may use, and its children with it."""
    return len(os.sched_getaffinity(0))


def processes(trainer: Trainer) -> dict[str, int]:
    """By kind and number of role, the process that plays it; the run itself is this one."""
    facts = trainer.cluster
    roles = {} if facts is None else {name: place.pid for name, place in facts.roles.items()}
    return {"run": os.getpid()} | {str(role): pid for role, pid in roles.items()}


def spent_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
