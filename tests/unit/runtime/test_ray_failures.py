"""Whatever Ray raises for a role that ended, a run says it in one sentence."""

import inspect
from typing import Any

import pytest

exceptions = pytest.importorskip("ray.exceptions")
from hotrow.runtime.ray.failures import reason  # noqa: E402

pytestmark = pytest.mark.ray

# As Ray 2.60 wrote it, shortened in the middle of its tables.
OUT_OF_MEMORY = """\
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: a82d21) was \
1.58GB used / 23.54GB limit (0.067074)
OOM kill reason: Memory usage 1695404032B exceeded threshold of 505530368B (2.0% of 25276518400B limit)
Object store memory usage: [- objects spillable: 0
(global lru) bytes evicted: 0]
Considered workers: [
Selected to kill: (Actor(5149cf): job ID=01000000, task name=ShardRole.__init__, required resources={}, pid=12667, \
actual memory used=0.04GB, worker ID=590c24)
]
To adjust the kill threshold, set the environment variable `RAY_memory_usage_threshold` when starting Ray."""

OLDER = (
    "Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.5, ID: 1f) where the task "
    "(actor ID: 2, name=ShardRole.__init__, pid=9, memory used=3.21GB) was running was 14.62GB / 15.30GB (0.955), "
    "which exceeds the memory usage threshold of 0.95."
)

DIED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: ShardRole\n\tpid: 15967\n\tip: 10.0.0.5\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: ..."
)

NOT_STARTED = (
    "The actor died because of an error raised in its creation task, \x1b[36mray::TrainerRole.__init__()\x1b[39m (p=1)"
    '\n  File "a.py", line 7, in __init__\n    raise ValueError("no")\n          ^^^\n'
    "ValueError: device:\n none is there."
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            exceptions.OutOfMemoryError(OUT_OF_MEMORY),
            "Ray ended it because its host 192.0.2.2 ran out of memory (1.58GB of 23.54GB in use, 0.04GB by this role)"
            ": give it more memory, or spread the run over more shards and hosts",
        ),
        (
            exceptions.OutOfMemoryError(OLDER),
            "Ray ended it because its host 10.0.0.5 ran out of memory (14.62GB of 15.30GB in use, 3.21GB by this role)"
            ": give it more memory, or spread the run over more shards and hosts",
        ),
        (exceptions.OutOfMemoryError("Low.\nx"), "Ray ended it because its host ran out of memory (Low)"),
        (
            exceptions.RayActorError("2", DIED),
            "The actor died unexpectedly before finishing this task (on host 10.0.0.5)",
        ),
        (exceptions.RayActorError("2", NOT_STARTED, actor_init_failed=True), "ValueError: device: none is there"),
        (
            exceptions.RayTaskError("serve", "Traceback", ArithmeticError("a\nb"), pid=1, ip="10.0.0.5"),
            "ArithmeticError: a b",
        ),
        (exceptions.NodeDiedError("Node 3 died.\nmore"), "NodeDiedError: Node 3 died"),
        (exceptions.RaySystemError("broken", "trace\nback"), "RaySystemError: System error: broken"),
        (exceptions.RayError(), "RayError: no reason given"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_an_exception_of_ray_is_one_sentence(error: Any, told: str) -> None:
    assert reason(error) == told


def test_all_exceptions_of_ray_share_the_class_that_is_caught() -> None:
    """Not all are of RayActorError; one that is not of RayError would end a run with a traceback."""
    kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass) if issubclass(kind, Exception)]
    assert len(kinds) > 20
    assert [kind for kind in kinds if not issubclass(kind, exceptions.RayError)] == []
