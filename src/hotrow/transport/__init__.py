"""The messages between the roles of a cluster: typed headers, tensors as frames, both sides authenticated.

security       the cluster's key, the handshake, the MACs of headers: values in, values out
messages       every header; envelope: headers as bytes, and the first frame of a message; frames: rows
limits         how much a peer may send, and when requests are repeated; counts, errors, faults
pending        requests without a reply
connection     one connection, on the client's side; peers: all connections, on the server's side
slots          which bytes of a ring are free; ring_memory: memory that two processes share; rings: frames in it;
               ring_ends: offers, and rings whose other end is gone
reply_cache    replies that were sent, for requests that arrive a second time
authenticator  which connections libzmq accepts; sockets: options, addresses, waking a loop
server         RpcServer, with its loop; request: one request
client         RpcClient; client_loop: its thread

`import hotrow` imports nothing of this package: pyzmq and msgspec belong to the extra `ray`.
"""

from importlib.util import find_spec

from hotrow.errors import ConfigError


def check_installed() -> None:
    """Raise ConfigError with the command that installs the missing packages; call it before importing them."""
    missing = [name for name, module in (("pyzmq", "zmq"), ("msgspec", "msgspec")) if find_spec(module) is None]
    if missing:
        raise ConfigError(f"a cluster needs {' and '.join(missing)}: pip install 'hotrow[ray]'")
