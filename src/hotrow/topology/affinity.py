"""Bind the threads of this process as a plan says: Linux scheduling affinity, and interleaved memory for new tables."""

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotrow import _native
from hotrow.topology.binding import Binding, BindingPlan, ThreadCounts, ThreadRole, plan_binding
from hotrow.topology.machine import Cpus, cpus_text, parse_cpus
from hotrow.topology.sysfs import read_topology

UNBOUND = BindingPlan("threads are not bound")


class ThreadBinder:
    """Binds threads of this process, and lets them free again. Does nothing where the plan binds nothing."""

    def __init__(self, plan: BindingPlan = UNBOUND) -> None:
        self.plan = plan
        self.refused: list[str] = []  # what the system did not permit, in sentences
        self._free = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()  # Linux alone
        self._bound: set[int] = set()  # threads, by the system's number

    def open(self) -> None:
        """Bind the threads of the store, and interleave the memory of tables that are made from now on."""
        if not self.plan.bindings:
            return
        pool = [binding.cpus for binding in self.plan.bindings if binding.role == "store"]
        self._bind_pool(pool)
        if (error := _native.interleave_memory(list(self.plan.interleave))) != 0:
            reason = os.strerror(error)
            self.refused.append(f"memory is not interleaved: the system refuses mbind ({reason})")

    def bind(self, role: ThreadRole, number: int = 0) -> None:
        """Bind the calling thread."""
        if (binding := self.plan.of(role, number)) is not None:
            self._bind(threading.get_native_id(), binding)

    def close(self) -> None:
        """Let all threads use all processors again. Memory of tables stays where it is."""
        if not self.plan.bindings:
            return
        self._bind_pool([self._free])
        _native.interleave_memory([])
        for thread in self._bound:
            with suppress(ProcessLookupError):  # most have ended
                os.sched_setaffinity(thread, self._free)
        self._bound.clear()

    @property
    def remarks(self) -> list[str]:
        """What was done, for the reports of a run."""
        if self.plan is UNBOUND:
            return []
        return [f"bind_cores: {self.plan.summary}", *(f"bind_cores: {each}" for each in self.refused)]

    def _bind_pool(self, cpus: Sequence[Cpus]) -> None:
        if (error := _native.bind_pool([list(each) for each in cpus])) != 0:
            self.refused.append(f"threads of the store are not bound: {os.strerror(error)}")

    def _bind(self, thread: int, binding: Binding) -> None:
        self._bound.add(thread)
        try:
            os.sched_setaffinity(thread, binding.cpus)
        except OSError as error:  # processors that were taken away since they were read
            self.refused.append(f"{binding.name} is not bound to {cpus_text(binding.cpus)}: {error.strerror}")


def open_binder(wanted: bool, threads: ThreadCounts) -> ThreadBinder:
    """The binder of a run on this host: of a plan that binds nothing where it is not wanted."""
    binder = ThreadBinder(plan_binding(read_topology(), threads) if wanted else UNBOUND)
    binder.open()
    return binder


def bind_process(role: ThreadRole, number: int) -> Binding | None:
    """Bind the calling thread of a role on this host, and with it the threads that it starts later; None: one node.

    The memory that they touch first is then on their node, so nothing is interleaved. A trainer with a GPU is bound
    near the first one that it sees.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
    place = int(seen) if role == "trainer" and seen.isdecimal() else number
    counts = ThreadCounts(trainers=place + 1, store=place + 1, readers=place + 1)
    binder = ThreadBinder(plan_binding(read_topology(), counts))
    binder.bind(role, place)
    for sentence in binder.refused:
        logging.getLogger("hotrow").warning("bind_cores: %s", sentence)
    return binder.plan.of(role, place)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A binding that was tried in a thread of its own."""

    binding: Binding
    found: Cpus  # that the system reports
    error: str | None = None

    @property
    def bound(self) -> bool:
        """Whether the thread had exactly the processors of the plan."""
        return self.error is None and self.found == self.binding.cpus


def rehearse(plan: BindingPlan) -> tuple[list[Rehearsed], str | None]:
    """Bind a thread for each line of a plan and read its processors back; and why memory cannot be interleaved."""
    tried: list[Rehearsed] = []
    for binding in plan.bindings:
        thread = threading.Thread(target=lambda binding=binding: tried.append(_tried(binding)))
        thread.start()
        thread.join()
    if not plan.interleave:
        return tried, None
    error = _native.interleave_memory(list(plan.interleave))
    _native.interleave_memory([])
    return tried, os.strerror(error) if error else None


def _tried(binding: Binding) -> Rehearsed:
    try:
        os.sched_setaffinity(0, binding.cpus)
    except OSError as error:
        return Rehearsed(binding, allowed_cpus(threading.get_native_id()), error.strerror)
    return Rehearsed(binding, allowed_cpus(threading.get_native_id()))


def allowed_cpus(thread: int) -> Cpus:
    """The processors that a thread of this process may use, as the kernel tells them."""
    for line in Path(f"/proc/self/task/{thread}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpus(value)
    return ()
