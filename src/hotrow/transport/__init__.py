"""How the roles of a cluster talk: typed headers, tensors as frames of their own, each side proven to the other.

security   the cluster's key, the handshake, the seals of headers: values in, values out
messages   every header; envelope: headers as bytes, and the first frame of a message; frames: rows
limits     how much a peer may send, how long somebody waits for one; counts, errors, faults: what happened
asks       what was asked and is not answered
line       one connection as the side that asks sees it; peers: all of them, as the side that is asked does
answers    what was answered, for who asks a second time
door       who may connect at all; sockets: options, addresses, waking a loop
server     the side that is asked, with its loop; request: one thing asked
wire       the side that asks; loop: its thread

Nothing here is imported with hotrow itself: pyzmq and msgspec belong to the extra `ray`.
"""

from importlib.util import find_spec

from hotrow.errors import ConfigError


def check_installed() -> None:
    """Say what to install where the parts of a cluster are missing; to be called before any of them is imported."""
    missing = [name for name, module in (("pyzmq", "zmq"), ("msgspec", "msgspec")) if find_spec(module) is None]
    if missing:
        raise ConfigError(f"a cluster needs {' and '.join(missing)}: pip install 'hotrow[ray]'")
