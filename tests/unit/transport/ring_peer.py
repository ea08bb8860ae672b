"""The other process of the tests of rings: `serve PORT` echoes until it is killed, `ask ADDRESS` sends until then."""

import sys

import numpy as np

from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Query
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import Request, RpcServer

KEY = ClusterKey(b"k" * 32)
NBYTES = 1 << 20


def serve(port: str) -> None:
    def echo(request: Request) -> None:
        request.reply(request.message, request.frames)

    server = RpcServer(f"tcp://127.0.0.1:{port}", security="key", key=KEY)
    print(server.address, flush=True)
    server.serve(echo)


def ask(address: str) -> None:
    frame = np.full(NBYTES, 7, np.uint8)
    wire = RpcClient(security="key", key=KEY, most_open=32)
    wire.connect("server", address)
    while True:
        wire.request("server", Query("ready"), [frame])


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](sys.argv[2])
