"""What a run may leave behind: processes, open ports, segments in shared memory. The system tells, not the run.

A process is known by its number and the time it started: numbers are used again.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from hotrow.store.segments import list_segments

PROC = Path("/proc")
PATIENCE_S = 15.0  # Ray's own processes take seconds to end
WAKE_S = 0.2


class Traces:
    """Notes what a run starts, and finds what is left of it."""

    def __init__(self, segment_run: str) -> None:
        """`segment_run`: the name that the run's segments begin with. Dense parameters of shards have other names."""
        self._segment_run = segment_run
        self._segments_before = {info.path for info in list_segments()}
        self._ports: set[int] = set()
        self._processes: dict[tuple[int, int], str] = {}  # (number, start) -> command

    def look(self) -> None:
        """Note the processes that descend from this one now."""
        for pid in descendants(os.getpid()):
            if (start := start_of(pid)) is not None:
                self._processes[pid, start] = command_of(pid)

    def listen_on(self, ports: list[int]) -> None:
        """Note ports that the run listens on."""
        self._ports.update(ports)

    @property
    def processes(self) -> int:
        """How many were seen."""
        return len(self._processes)

    def faults(self, patience_s: float = PATIENCE_S) -> list[str]:
        """A sentence for everything that is left after some seconds."""
        until = time.monotonic() + patience_s
        while (left := list(self._left())) and time.monotonic() < until:
            time.sleep(WAKE_S)
        return left

    def _left(self) -> Iterator[str]:
        for (pid, start), command in self._processes.items():
            if start_of(pid) == start:
                yield f"process {pid} is left behind: {command}"
        for port in sorted(self._ports):
            if is_open(port):
                yield f"port {port} is left open"
        for info in list_segments():
            new = info.path not in self._segments_before and info.state in ("left behind", "kept")
            if new or info.run.startswith(self._segment_run):
                yield f"segment {info.path} is left behind ({info.state})"


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for each in PROC.iterdir():
        if each.name.isdecimal() and (fields := _stat(int(each.name))) is not None:
            parents.setdefault(int(fields[1]), []).append(int(each.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def start_of(pid: int) -> int | None:
    """When a process started, in ticks; None where it is gone, or dead and not yet collected by its parent."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def command_of(pid: int) -> str:
    """The command line of a process."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return "?"


def _stat(pid: int) -> list[str] | None:
    """The fields of a process from its state on."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def is_open(port: int) -> bool:
    """Whether a process listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
