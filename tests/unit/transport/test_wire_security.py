"""The key, the handshake and the seals: only who knows the key is believed, and only what was said, once, in order."""

import os
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.transport.security import (
    KEY_FILE,
    NO_KEY,
    Challenge,
    ClientHandshake,
    ClusterKey,
    ServerHandshake,
    Session,
    checked_key,
)
from unit.transport.parts import KEY, OTHER_KEY

LABEL = b"q" + bytes(8)


def sessions(macs: bool = True) -> tuple[Session, Session]:
    """The two ends of a connection."""
    client = ClientHandshake(KEY, macs=macs)
    server = ServerHandshake(KEY, client.hello, macs=macs)
    proven = client.prove(server.challenge)
    assert proven is not None
    accepted = server.accept(proven[0])
    assert accepted is not None
    return proven[1], accepted[0]


def test_a_key_comes_back_from_its_file_which_only_the_owner_may_read(tmp_path: Path) -> None:
    key, path = ClusterKey.generate(), tmp_path / "key"
    mask = os.umask(0)
    try:
        key.write(path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ClusterKey.read(path) == key
    assert key != ClusterKey.generate()


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "key"
    KEY.write(path)
    with pytest.raises(ConfigError, match="never written over"):
        OTHER_KEY.write(path)
    assert ClusterKey.read(path) == KEY
    with pytest.raises(ConfigError, match="cannot be written"):
        KEY.write(tmp_path / "missing" / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_file_that_others_may_touch_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "key"
    KEY.write(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
        ClusterKey.read(path)
    path.chmod(0o400)
    assert ClusterKey.read(path) == KEY


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "00" * 33, "\xff" * 64])
def test_a_file_that_holds_no_key_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        ClusterKey.read(path)


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    with pytest.raises(ConfigError, match=KEY_FILE):
        ClusterKey.of_env()
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    with pytest.raises(ConfigError, match="No such file"):
        ClusterKey.of_env()
    KEY.write(tmp_path / "key")
    assert ClusterKey.of_env() == KEY


def test_a_key_does_not_show_itself() -> None:
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)
    with pytest.raises(ConfigError, match="32 bytes, not 31"):
        ClusterKey(bytes(31))


def test_security_needs_a_key_unless_it_is_off() -> None:
    assert checked_key("off", None) == checked_key("off", KEY) == NO_KEY
    assert checked_key("key", KEY) == checked_key("curve", KEY) == KEY
    for security in ("key", "curve"):
        with pytest.raises(ConfigError, match="hotrow keygen"):
            checked_key(security, None)
    with pytest.raises(ConfigError, match="'off', 'key' or 'curve'"):
        checked_key("none", KEY)  # type: ignore[arg-type]


def test_who_asks_does_not_believe_a_server_without_the_key() -> None:
    client = ClientHandshake(KEY, macs=True)
    assert client.prove(ServerHandshake(OTHER_KEY, client.hello, macs=True).challenge) is None
    assert client.prove(ServerHandshake(KEY, bytes(32), macs=True).challenge) is None  # of somebody else's hello


def test_a_server_does_not_believe_a_proof_without_the_key_or_of_another_handshake() -> None:
    client = ClientHandshake(KEY, macs=True)
    first, second = (ServerHandshake(KEY, client.hello, macs=True) for _ in range(2))
    proven = client.prove(first.challenge)
    assert proven is not None
    assert second.accept(proven[0]) is None
    assert first.accept(first.challenge.proof) is None  # its own proof, sent back
    assert first.accept(b"") is None
    assert first.accept(proven[0][:-1] + bytes([proven[0][-1] ^ 1])) is None  # another name
    assert first.accept(proven[0] + b"x") is None
    accepted = first.accept(proven[0])
    assert accepted is not None
    assert proven[0].endswith(accepted[1])


def test_a_challenge_has_one_length() -> None:
    challenge = ServerHandshake(KEY, bytes(32), macs=True).challenge
    data = b"".join(challenge)
    assert Challenge.parse(data) == challenge
    assert Challenge.parse(data[:-1]) is None
    assert Challenge.parse(data + b"x") is None


def test_what_was_sealed_opens_once_in_order_and_gaps_are_no_harm() -> None:
    requests, asked = sessions()
    first, lost, third = (requests.seal(LABEL, b"header", [1, 2]) for _ in range(3))
    assert asked.open(first, LABEL, b"header", [1, 2])
    assert not asked.open(first, LABEL, b"header", [1, 2])
    assert asked.open(third, LABEL, b"header", [1, 2])
    assert not asked.open(lost, LABEL, b"header", [1, 2])


def test_what_is_sent_back_to_where_it_came_from_does_not_open() -> None:
    for one, other in (sessions(), sessions()[::-1]):
        seal = one.seal(LABEL, b"header")
        assert not one.open(seal, LABEL, b"header")
        assert other.open(seal, LABEL, b"header")


def test_sessions_do_not_open_each_other_s_seals() -> None:
    one, _ = sessions()
    _, other = sessions()
    assert not other.open(one.seal(LABEL, b"header"), LABEL, b"header")


def test_a_seal_that_does_not_hold_changes_nothing() -> None:
    requests, asked = sessions()
    seal = requests.seal(LABEL, b"header")
    forged = (2**63).to_bytes(8, "little") + seal[8:]
    assert not asked.open(forged, LABEL, b"header")
    assert asked.open(seal, LABEL, b"header")


@given(
    header=st.binary(max_size=40),
    lengths=st.lists(st.integers(0, 2**40), max_size=4),
    where=st.integers(0, 2**30),
    how=st.sampled_from(["seal", "label", "header", "length", "frame more", "frame less", "shift", "cut"]),
)
def test_any_alteration_is_noticed(header: bytes, lengths: list[int], where: int, how: str) -> None:
    requests, asked = sessions()
    seal = requests.seal(LABEL, header, lengths)
    told = {"seal": seal, "label": LABEL, "header": header}
    altered = list(lengths)
    if told.get(how):
        data = bytearray(told[how])
        data[where % len(data)] ^= 1 << where % 8
        told[how] = bytes(data)
    elif how == "length" and altered:
        altered[where % len(altered)] += 1 + where
    elif how == "frame less" and altered:
        altered.pop()
    elif how == "shift" and header:  # the header's last byte becomes the length of a frame
        told["header"], altered = header[:-1], [header[-1], *altered]
    elif how == "cut":
        told["seal"] = seal[: where % len(seal)]
    else:
        altered.append(where)
    assert not asked.open(told["seal"], told["label"], told["header"], altered)
    assert asked.open(seal, LABEL, header, lengths)


def test_the_seal_is_the_documented_one() -> None:
    session = Session(b"s" * 32, is_client=True, macs=True)
    covered = b">" + (1).to_bytes(8, "little") + LABEL + (24).to_bytes(8, "little")
    covered += b"".join(number.to_bytes(8, "little") for number in (6, 10, 20)) + b"header"
    expected = (1).to_bytes(8, "little") + blake2b(covered, digest_size=16, key=b"s" * 32).digest()
    assert session.seal(LABEL, b"header", [10, 20]) == expected


def test_without_macs_only_the_order_is_kept() -> None:
    requests, asked = sessions(macs=False)
    seal = requests.seal(LABEL, b"header")
    assert len(seal) == 8
    assert not asked.open(seal[:7], LABEL)
    assert not asked.open(seal + b"x", LABEL)
    assert asked.open(seal, LABEL, b"another header")
    assert not asked.open(seal, LABEL, b"header")
