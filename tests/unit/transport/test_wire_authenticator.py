"""Who may connect, and where an unsecured server may be bound."""

import pytest
import zmq

from hotrow.errors import ConfigError
from hotrow.transport.authenticator import ZapAuthenticator
from hotrow.transport.client import RpcClient
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.transport.sockets import is_loopback
from hotrow.types import Security
from unit.transport.parts import KEY, OTHER_KEY, Raw


def question(mechanism: bytes, *credentials: bytes, version: bytes = b"1.0") -> list[bytes]:
    return [version, b"7", b"hotrow", b"127.0.0.1", b"", mechanism, *credentials]


def credentials_of(key: ClusterKey) -> list[bytes]:
    """What a client with this key would show."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        ZapAuthenticator("key", key).configure_client(socket)
        return [socket.getsockopt(option).rstrip(b"\0") for option in (zmq.PLAIN_USERNAME, zmq.PLAIN_PASSWORD)]  # type: ignore[union-attr]


def test_the_door_opens_for_the_key_s_password_only() -> None:
    door, (user, password) = ZapAuthenticator("key", KEY), credentials_of(KEY)
    assert door.answer(question(b"PLAIN", user, password)) == (True, [b"1.0", b"7", b"200", b"OK", b"", b""])
    refusal = (False, [b"1.0", b"7", b"400", b"No access", b"", b""])
    for wrong in (
        question(b"PLAIN", *credentials_of(OTHER_KEY)),
        question(b"PLAIN", user, password + b"x"),
        question(b"PLAIN", user),
        question(b"PLAIN", user, password, b""),
        question(b"NULL"),
        question(b"NULL", user, password),
        question(b"CURVE", password[:32]),
        question(b"PLAIN", user, password, version=b"2.0"),
        [b"1.0", b"7"],
    ):
        assert door.answer(wrong) == refusal
    assert door.answer([])[0] is False


@pytest.mark.parametrize("security", ["key", "curve"])
def test_a_locked_socket_lets_nobody_in_while_nobody_is_at_the_door(security: Security) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        ZapAuthenticator(security, KEY).configure_server(socket)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        with Raw(f"tcp://127.0.0.1:{port}", security=security) as friend:
            friend.send(b"hello")
            assert not socket.poll(300)


def test_passwords_and_pairs_of_one_key_tell_nothing_of_it() -> None:
    _, password = credentials_of(KEY)
    assert KEY.secret.hex().encode() not in password
    assert credentials_of(OTHER_KEY)[1] != password


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("tcp://127.0.0.1:*", True),
        ("tcp://127.8.9.1:5555", True),
        ("tcp://localhost:5555", True),
        ("tcp://[::1]:5555", True),
        ("tcp://0.0.0.0:*", False),
        ("tcp://*:*", False),
        ("tcp://[::]:1", False),
        ("tcp://10.0.0.1:5555", False),
        ("tcp://lo:5555", False),
        ("tcp://localhost.example.org:5555", False),
    ],
)
def test_what_is_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_without_security_nothing_leaves_the_machine() -> None:
    for bind in ("tcp://0.0.0.0:*", "tcp://*:*"):
        with pytest.raises(ConfigError, match="loopback only"):
            RpcServer(bind, security="off")
    with RpcClient(security="off") as wire, pytest.raises(ConfigError, match="loopback only"):
        wire.connect("shard", "tcp://10.0.0.1:5555")
    with RpcServer("tcp://0.0.0.0:*", security="key", key=KEY) as server:
        assert server.address.startswith("tcp://0.0.0.0:")


@pytest.mark.parametrize("address", ["ipc:///tmp/x", "127.0.0.1:80", "tcp://127.0.0.1", "tcp://:5", "tcp://127.0.0.1:"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ConfigError, match="tcp://host:port"):
        RpcServer(address, security="key", key=KEY)
    with RpcClient(security="key", key=KEY) as wire, pytest.raises(ConfigError, match="tcp://host:port"):
        wire.connect("shard", address)


def test_an_address_in_use_is_told() -> None:
    with RpcServer(security="off") as server, pytest.raises(ConfigError, match="Address already in use"):
        RpcServer(server.address, security="off")
