"""One call at a time in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundThread:
    """Runs a call while the caller does something else. The thread starts with the first call."""

    def __init__(self, name: str, started: Callable[[], None] | None = None) -> None:
        """`started` is called first in the thread."""
        self._name, self._started = name, started
        self._pool: ThreadPoolExecutor | None = None
        self._call: Future[None] | None = None

    def start(self, call: Callable[[], None]) -> None:
        """Start a call, after the one before."""
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name, initializer=self._started)
        self._call = self._pool.submit(call)

    def wait(self) -> None:
        """Wait for the call, and raise its error. An interrupted wait may be repeated."""
        if self._call is None:
            return
        self._call.exception()  # waits
        call, self._call = self._call, None
        call.result()

    def close(self) -> None:
        """End the thread, after the call that runs; its error is raised."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
