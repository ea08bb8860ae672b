"""Proxies on loopback, one in front of every role: connections to it pass through, and can be delayed and cut.

The transport sends large frames of one host through shared memory; their headers, and so their order and their time,
pass here. All-reduce between trainers does not.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from hotrow.types import RoleId

T = TypeVar("T")

HOST = "127.0.0.1"
CHUNK = 1 << 16
SETTLE_S = 0.02
QUEUED = 256  # chunks that wait for their time


class Links:
    """The proxies of a cluster, in a thread of their own. Use it in a `with`, or close it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxies: dict[RoleId, _Proxy] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos links", daemon=True)
        self._thread.start()

    def route(self, name: RoleId, address: str) -> str:
        """Put a proxy in front of a role; returns its address. A role that starts again gets the one it had."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if (proxy := self._proxies.get(name)) is None:
            proxy = self._proxies[name] = _Proxy()
            self._call(proxy.start())
        proxy.target = host, int(port)
        return f"tcp://{HOST}:{proxy.port}"

    def delay(self, name: RoleId, seconds: float) -> None:
        """From now on each chunk of bytes takes so long, to the role and back."""
        self._proxies[name].delay_s = seconds

    def cut(self, name: RoleId) -> None:
        """Close all connections to a role, and new ones at once."""
        self._call(self._proxies[name].cut())

    def restore(self, name: RoleId) -> None:
        """End a delay or a cut."""
        proxy = self._proxies[name]
        proxy.delay_s, proxy.is_cut = 0.0, False

    @property
    def ports(self) -> list[int]:
        """All that proxies listen on."""
        return [proxy.port for proxy in self._proxies.values()]

    def close(self) -> None:
        """Close all connections and stop listening."""
        for end in (_Proxy.cut, _Proxy.close):
            for proxy in self._proxies.values():
                self._call(end(proxy))
            self._call(asyncio.sleep(SETTLE_S))  # the loop ends connections that were being made, and closes sockets
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, act: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result()


class _Proxy:
    """One listening port. Everything but `delay_s` and `is_cut` belongs to the thread of the loop."""

    def __init__(self) -> None:
        self.target = (HOST, 0)
        self.delay_s = 0.0
        self.is_cut = False
        self.port = 0
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        self.is_cut = True
        await self._end_all()

    async def close(self) -> None:
        self._server.close()
        await self.cut()  # connections that were accepted and not begun, too

    async def _end_all(self) -> None:
        ended = list(self._open)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        writers = [writer]
        try:
            if self.is_cut:
                return
            role_reader, role_writer = await asyncio.open_connection(*self.target)
            writers.append(role_writer)
            ways = [asyncio.ensure_future(self._pass_on(reader, role_writer))]
            ways.append(asyncio.ensure_future(self._pass_on(role_reader, writer)))
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the role has ended: so does the connection to it
        except asyncio.CancelledError:
            pass  # cut or closed; the task ends here
        finally:
            for each in writers:
                each.transport.abort()
            self._open.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED)
        sending = asyncio.ensure_future(self._send(chunks, writer))
        now = asyncio.get_running_loop().time
        try:
            with suppress(OSError):
                while chunk := await reader.read(CHUNK):
                    await chunks.put((now() + self.delay_s, chunk))
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, chunks: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, chunk = await chunks.get()
            if (early := due - now()) > 0:
                await asyncio.sleep(early)
            writer.write(chunk)
            await writer.drain()
