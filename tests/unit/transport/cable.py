"""A cable between a wire and a server that a test can cut, or make lose what the server says."""

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Cable:
    """Listens where the wire connects to, and passes bytes on. Whoever is cut off may connect again."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.deaf = False  # what the server says is lost
        self.snaps = False  # it breaks by the next thing that the server says, which is lost
        self.lost = 0  # bytes of it
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End all connections, at once."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Cable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self.connections += 1
            with self._lock:
                self._ends += [near, far]
            for way in ((near, far, False), (far, near, True)):
                self._threads.append(threading.Thread(target=self._pass_on, args=way))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if back and self.snaps:
                    self.lost += len(data)
                    self.snaps = False
                    self.cut()
                elif back and self.deaf:
                    self.lost += len(data)
                else:
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()
