"""Which connections are accepted. libzmq asks (ZAP) before it reads the first message of a new connection.

`key`    a password made from the cluster's key (mechanism PLAIN). A connection without it is refused before its
         frames take memory and before it may choose a routing id that libzmq would fail on. It is sent in plain
         text, so it proves nothing: the handshake of security.py does, and follows.
`curve`  CURVE: both key pairs are made from the cluster's key, and only that one client is accepted.
`off`    every connection: on loopback only.
"""

from collections.abc import Sequence
from hmac import compare_digest

import zmq
from zmq.utils import z85

from hotrow.transport.security import ClusterKey
from hotrow.types import Security

ENDPOINT = "inproc://zeromq.zap.01"  # where libzmq sends ZAP requests, one per context
_VERSION, _USER, _DOMAIN = b"1.0", b"hotrow", b"hotrow"


class ZapAuthenticator:
    """Sets the security options of sockets and answers the ZAP requests of libzmq."""

    def __init__(self, security: Security, key: ClusterKey) -> None:
        self._security = security
        self._password = key.derive(b"door").hex().encode()
        self._server_secret = z85.encode(key.derive(b"curve asked"))
        self._client_secret = z85.encode(key.derive(b"curve requests"))

    def configure_server(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the options of a server's socket, before it is bound."""
        if self._security == "off":
            return
        socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without it libzmq accepts all while ZAP is not served
        if self._security == "key":
            socket.setsockopt(zmq.PLAIN_SERVER, 1)
        else:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._server_secret)

    def configure_client(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the options of a client's socket, before it connects."""
        if self._security == "key":
            socket.setsockopt(zmq.PLAIN_USERNAME, _USER)
            socket.setsockopt(zmq.PLAIN_PASSWORD, self._password)
        elif self._security == "curve":
            socket.setsockopt(zmq.CURVE_SECRETKEY, self._client_secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(self._client_secret))
            socket.setsockopt(zmq.CURVE_SERVERKEY, zmq.curve_public(self._server_secret))

    def answer(self, question: Sequence[bytes]) -> tuple[bool, list[bytes]]:
        """Whether a new connection is accepted, and the reply to libzmq."""
        number = question[1] if len(question) > 1 else b""
        welcome = len(question) >= 7 and question[0] == _VERSION and self._fits(question[5], question[6:])
        verdict = [b"200", b"OK"] if welcome else [b"400", b"No access"]
        return welcome, [_VERSION, number, *verdict, b"", b""]

    def _fits(self, mechanism: bytes, credentials: Sequence[bytes]) -> bool:
        if self._security == "key":
            wanted = [b"PLAIN", _USER, self._password]
        else:
            wanted = [b"CURVE", z85.decode(zmq.curve_public(self._client_secret))]
        return len(credentials) == len(wanted) - 1 and all(map(compare_digest, [mechanism, *credentials], wanted))
