"""An update of a table that waits, and is performed before anything else touches the table."""

import threading
from collections.abc import Callable

from hotrow.store.applied import Applied


class DeferredUpdate:
    """At most one update that waits. Thread-safe: others wait until it is performed."""

    def __init__(self) -> None:
        self.failed = False  # an update was performed in part, or not at all
        self.lock = threading.RLock()  # held while an update is performed
        self._update: Callable[[], Applied] | None = None
        self._performs: int | None = None  # thread
        self._results: list[Applied] = []

    def waits(self) -> bool:
        """Whether the calling thread has to settle before it touches the table."""
        return self._update is not None and self._performs != threading.get_ident()

    def put(self, update: Callable[[], Applied]) -> None:
        """Keep an update for later."""
        with self.lock:
            self.settle()
            self._update = update

    def settle(self) -> None:
        """Perform the update that waits, if there is one. It is performed once, also if it fails."""
        with self.lock:
            if self._update is None:
                return
            self._performs = threading.get_ident()
            try:
                self._results.append(self._update())
            except BaseException:
                self.failed = True
                raise
            finally:
                self._update = self._performs = None

    def take_results(self) -> list[Applied]:
        """The results of updates that were performed since the last call."""
        with self.lock:
            results, self._results = self._results, []
        return results
