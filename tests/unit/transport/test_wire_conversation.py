"""Both sides of a connection without sockets, in virtual time: handshakes, losses, restarts, strangers."""

import gc
import random
import weakref
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.transport import envelope
from hotrow.transport.connection import OTHER_KEY as TROUBLE
from hotrow.transport.connection import Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Opened, encode
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Done, Fault
from hotrow.transport.peers import Accepted, CachedReply, Peers, Refused, Respond
from hotrow.transport.pending import PendingRequest
from hotrow.transport.reply_cache import ReplyCache
from hotrow.transport.security import Challenge, ClientHandshake, ClusterKey
from unit.transport.parts import KEY, OTHER_KEY, READY

PATIENCE = RetryPolicy(first_s=1, most_s=4, give_up_s=30)


class Talk:
    """A line and the peers of a server, with nothing but two lists between them."""

    def __init__(self, *, key: ClusterKey = KEY, limits: Limits | None = None, retry: RetryPolicy = PATIENCE) -> None:
        self.counts, self.now = WireCounts(), 0.0
        self.connection = Connection(KEY, macs=True, retry=retry, chance=lambda: 0.5, counts=self.counts)
        self.key, self.limits = key, limits or Limits()
        self.heard: list[int] = []  # requests that reached the server's handler
        self.refused: list[str] = []
        self.answered: list[int] = []
        self.lost: list[int] = []
        self.drops: Callable[[], bool] = lambda: False
        self.answers = True
        self.busy = False
        self.who, self.repeated = b"me", 0
        self.restart()

    def restart(self) -> None:
        self.peers = Peers(self.key, self.limits, macs=True)

    def request(self, number: int, frames: tuple[bytes, ...] = ()) -> None:
        self.connection.put(PendingRequest(number, encode(READY), envelope.lent(frames), True, self.now), self.now)

    def step(self, seconds: float = 0.0) -> None:
        """Let time pass, and everything that was said arrive."""
        self.now += seconds
        self.lost += [request.number for request in self.connection.tick(self.now)]
        while self.connection.outbox:
            frames = list(envelope.lent(self.connection.outbox.pop(0).frames))
            if not self.drops():
                self._serve(frames)

    def say(self, *frames: bytes) -> None:
        """To the side that requests."""
        if self.drops():
            return
        answered = self.connection.receive(envelope.lent(frames), self.now)
        if answered is not None:
            self.answered.append(answered.request.number)

    def say_busy(self, number: int) -> None:
        header = encode(Fault("busy", "later"))
        way = self.peers.answer(self.connection.name, number, header, (), final=False)
        assert way is not None
        answered = self.connection.receive(envelope.lent(way[1].frames), self.now)
        assert answered is not None
        self.connection.put_off(answered.request, self.now)  # as the loop does

    def answer(self, number: int) -> None:
        header = encode(Done())
        way = self.peers.answer(self.connection.name, number, header, (), final=True)
        if way is not None:
            self.say(*map(bytes, way[1].frames))

    def _serve(self, frames: list[memoryview]) -> None:
        match self.peers.receive(self.who, frames):
            case Accepted(_, Opened(number)):
                self.heard.append(number)
                if self.busy:
                    self.say_busy(number)
                elif self.answers:
                    self.answer(number)
            case CachedReply(answer):
                self.repeated += 1
                self.say(*map(bytes, answer))
            case Respond(answer) if answer:
                self.say(*answer)
            case Refused(reason, frame):
                self.refused.append(reason)
                if frame is not None:
                    self.say(frame)


def test_an_ask_waits_for_the_handshake_and_is_answered_once() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    assert (talk.heard, talk.answered, talk.refused) == ([1], [1], [])
    assert talk.counts == WireCounts(requests=1, handshakes=1)
    talk.step(100)
    assert talk.counts.probes == 0


def test_a_second_answer_is_dropped_and_counted() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.answer(1)
    assert (talk.answered, talk.counts.unexpected) == ([1], 1)


def test_a_slow_peer_is_asked_how_it_goes_and_gets_the_frames_once() -> None:
    talk = Talk()
    talk.answers = False
    talk.request(1, (b"much",))
    for _ in range(200):
        talk.step(1.0)
    assert (talk.heard, talk.lost, talk.counts.resends) == ([1], [], 0)
    assert talk.counts.probes > 40
    talk.answer(1)
    assert talk.answered == [1]


def test_a_lost_ask_is_sent_again_when_the_peer_denies_it() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.request(2, (b"much",))
    talk.drops = lambda: True
    talk.step()
    talk.drops = lambda: False
    talk.step(0.9)
    assert talk.heard == [1]
    talk.step(0.2)
    talk.step()
    assert (talk.heard, talk.answered, talk.counts.resends) == ([1, 2], [1, 2], 1)


def test_a_lost_answer_makes_the_ask_come_again() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.answers = False
    talk.request(2)
    talk.step()
    talk.drops = lambda: True
    talk.answer(2)
    talk.drops, talk.answers = (lambda: False), True
    talk.step(1.1)
    talk.step()
    assert (talk.heard, talk.answered, talk.repeated) == ([1, 2], [1, 2], 1)


def test_a_server_that_started_anew_hears_all_open_asks_again_at_once() -> None:
    talk = Talk()
    talk.answers = False
    talk.request(1)
    talk.request(2)
    talk.step()
    talk.step(0.9)
    talk.restart()
    talk.answers = True
    talk.request(3)
    talk.step(0.1)  # no sooner than a pause after the first hello, since nothing was heard of the peer yet
    talk.step()
    assert talk.answered == [1, 2, 3]
    talk.restart()
    talk.request(4)
    talk.step()
    talk.step()  # now at once
    assert talk.answered == [1, 2, 3, 4]
    assert (set(talk.refused), talk.counts.handshakes) == ({"unproven"}, 3)


def test_a_new_session_of_a_peer_does_not_repeat_what_is_in_hand() -> None:
    talk = Talk()
    talk.answers = False
    talk.request(1)
    talk.step()
    talk.say(envelope.UNAUTHENTICATED)  # anybody may say so
    talk.step()
    talk.step(2)
    assert (talk.heard, talk.refused) == ([1], ["repeated"])
    talk.answer(1)
    assert talk.answered == [1]


def test_a_new_connection_of_a_peer_has_no_ask_handled_twice_and_gets_the_answers() -> None:
    """One request is in hand and one was answered when the connection breaks; the routing id is another one then."""
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.answers = False
    talk.request(2)
    talk.request(3)
    talk.step()
    talk.drops = lambda: True
    talk.answer(2)  # on its way when it breaks
    talk.drops, talk.who = (lambda: False), b"another"
    for _ in range(3):
        talk.step(1.1)
    talk.answer(3)
    assert (talk.heard, sorted(talk.answered)) == ([1, 2, 3], [1, 2, 3])
    assert (talk.repeated, talk.refused.count("repeated"), talk.counts.handshakes) == (1, 1, 2)


def test_an_old_copy_of_an_ask_on_a_connection_that_broke_is_not_handled() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.request(2)
    talk.connection.tick(talk.now)
    old = list(envelope.lent(talk.connection.outbox.pop().frames))
    before, talk.who = talk.who, b"another"
    for _ in range(3):
        talk.step(1.1)
    assert talk.heard == [1, 2]
    late = talk.peers.receive(before, old)
    assert isinstance(late, CachedReply)
    assert talk.heard == [1, 2]


@pytest.mark.parametrize(("size", "repeated", "heard"), [(500, 1, [1]), (501, 0, [1, 1])])
def test_large_answers_are_made_again(size: int, repeated: int, heard: list[int]) -> None:
    talk = Talk(limits=Limits(kept_answer_bytes=500 + len(encode(Done()))))
    talk.answers = False
    talk.request(1)
    talk.step()
    frames = envelope.lent([bytes(size)])
    assert talk.peers.answer(talk.connection.name, 1, encode(Done()), frames, final=True) is not None  # and is lost
    talk.step(1.1)
    talk.step()
    assert (talk.repeated, talk.heard) == (repeated, heard)


def test_answers_are_kept_up_to_a_bound_the_last_ones() -> None:
    answers = ReplyCache(Limits(kept_bytes=3 * 1_124))
    for number in range(1, 6):
        answers.keep(b"me", number, bytes(60), envelope.lent([bytes(40)]))
    assert [answers.find(b"me", number) is not None for number in range(1, 6)] == [False, False, True, True, True]
    assert (len(answers), answers.nbytes) == (3, 3 * 1_124)
    assert answers.find(b"you", 5) is None


def test_a_kept_answer_holds_its_own_bytes_and_not_the_memory_they_came_from() -> None:
    answers = ReplyCache(Limits())
    large = np.arange(1 << 20, dtype=np.float32)
    gone = weakref.ref(large)
    answers.keep(b"me", 1, b"header", envelope.lent([large[:2_048].reshape(32, 64)]))
    del large
    gc.collect()
    assert gone() is None
    found = answers.find(b"me", 1)
    assert found is not None
    assert np.array_equal(np.frombuffer(found[1][0], np.float32), np.arange(2_048))
    assert answers.nbytes == 1_024 + 6 + 4 * 2_048


def test_an_answer_is_kept_until_an_ask_shows_that_it_came() -> None:
    talk = Talk()
    for number in range(1, 100):
        talk.request(number)
        talk.step()
        assert talk.peers.kept == 1  # the last one: nobody can know yet
    talk.answers = False
    talk.request(100)
    talk.step()
    talk.answers = True
    for number in range(101, 110):
        talk.request(number)
        talk.step()
        assert talk.peers.kept == number - 100  # the line still waits for 100
    talk.answer(100)
    talk.request(110)
    talk.step()
    assert (talk.peers.kept, talk.answered) == (1, [*range(1, 100), *range(101, 110), 100, 110])


def test_answers_of_other_peers_stay() -> None:
    answers = ReplyCache(Limits())
    for name, number in ((b"me", 1), (b"me", 2), (b"you", 1)):
        answers.keep(name, number, b"", ())
    answers.release(b"me", 2)
    answers.release(b"nobody", 9)
    assert [answers.find(*each) is not None for each in ((b"me", 1), (b"me", 2), (b"you", 1))] == [False, True, True]
    assert (len(answers), answers.nbytes) == (2, 2 * 1_024)


def test_an_old_copy_of_an_ask_whose_answer_came_is_not_handled() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.request(2)
    talk.connection.tick(talk.now)
    old = list(envelope.lent(talk.connection.outbox.pop().frames))  # held up in a connection that breaks
    before, talk.who = talk.who, b"another"
    for _ in range(3):
        talk.step(1.1)
    talk.request(3)
    talk.step()
    assert (talk.heard, talk.answered, talk.peers.kept) == ([1, 2, 3], [1, 2, 3], 1)
    assert talk.peers.receive(before, old) == Refused("repeated")


def test_what_nobody_waits_for_any_more_is_not_kept() -> None:
    talk = Talk()
    talk.answers = False
    talk.request(1)
    talk.step()
    talk.step(31)  # nothing was heard: the line gives it up
    talk.answers = True
    talk.request(2)
    talk.step(0.1)
    talk.answer(1)
    assert (talk.lost, talk.answered, talk.peers.kept) == ([1], [2], 1)


def test_a_busy_peer_is_asked_again_with_pauses_that_double_and_is_not_lost() -> None:
    talk = Talk(retry=RetryPolicy(first_s=1, most_s=4, give_up_s=30, busy_first_s=0.5, busy_most_s=8))
    talk.busy = True
    talk.request(1, (b"much",))
    sent = []
    for eighth in range(1_000):
        before = len(talk.heard)
        talk.step(0.125)
        sent += [eighth / 8] * (len(talk.heard) - before)
    pauses = [second - first for first, second in pairwise(sent)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert set(pauses[4:]) == {8.0}
    assert (talk.lost, talk.answered, talk.counts.busy) == ([], [], len(sent))
    talk.busy = False
    for _ in range(9):
        talk.step(1.0)
    assert talk.answered == [1]


def test_a_dead_peer_is_lost_after_silence_with_what_is_known() -> None:
    talk = Talk()
    talk.drops = lambda: True
    talk.request(1)
    for _ in range(29):
        talk.step(1.0)
    assert talk.lost == []
    talk.step(1.0)
    assert talk.lost == [1]
    assert "running" in talk.connection.trouble


def test_a_peer_with_another_key_is_not_asked_anything() -> None:
    talk = Talk(key=OTHER_KEY)
    talk.request(1)
    for _ in range(31):
        talk.step(1.0)
    assert (talk.heard, talk.lost, talk.connection.trouble) == ([], [1], TROUBLE)
    assert talk.counts.handshakes == 0


def test_a_challenge_to_an_earlier_hello_is_passed_over() -> None:
    """Hellos to a server that was not up yet arrive together when it is."""
    talk = Talk()
    talk.connection.tick(0.0)
    talk.connection.tick(5.0)
    challenges = [talk.peers.receive(b"me", envelope.lent(hello.frames)) for hello in talk.connection.outbox]
    talk.connection.outbox.clear()
    for challenge, proofs in zip(challenges, (0, 1), strict=True):
        assert isinstance(challenge, Respond)
        talk.say(*challenge.frames)
        assert (len(talk.connection.outbox), talk.counts.refused_mac, talk.counts.handshakes) == (proofs, 0, proofs)


def test_who_are_you_without_end_does_not_make_a_storm() -> None:
    talk = Talk()
    talk.request(1)
    for _ in range(1000):
        talk.say(envelope.UNAUTHENTICATED)
        talk.peers = Peers(KEY, talk.limits, macs=True)  # it forgets at once
        talk.connection.outbox = [
            each for each in talk.connection.outbox if bytes(each.frames[0])[:1] == envelope.HELLO
        ]
        talk.step(0.01)
    assert talk.counts.handshakes < 15


def test_answers_that_were_recorded_or_altered_are_refused() -> None:
    talk = Talk()
    talk.request(1)
    talk.request(2)
    talk.answers = False
    talk.step()
    header = encode(Done())
    way = talk.peers.answer(talk.connection.name, 1, header, (), final=True)
    assert way is not None
    first = bytes(way[1].frames[0])
    talk.say(first, header + b"x")
    talk.say(first, header, b"a frame more")
    talk.say(first[:1] + (2).to_bytes(8, "little") + first[9:], header)
    assert (talk.answered, talk.counts.refused_mac) == ([], 3)
    talk.say(first, header)
    talk.say(first, header)
    assert (talk.answered, talk.counts.refused_mac) == ([1], 4)


@pytest.mark.parametrize("frames", [(b"",), (b"z",), (b"a",), (b"c",), (b"c" * 200,), (b"", b"", b"")])
def test_nonsense_changes_nothing_for_who_asks(frames: tuple[bytes, ...]) -> None:
    talk = Talk()
    talk.say(*frames)
    talk.request(1)
    talk.step()
    talk.say(*frames)
    talk.request(2)
    talk.step()
    assert talk.answered == [1, 2]


def test_handshakes_under_way_and_peers_are_bounded() -> None:
    peers = Peers(KEY, Limits(unproven_peers=5, peers=3), macs=True)
    for number in range(100):
        peers.receive(b"stranger %d" % number, envelope.lent([envelope.HELLO + bytes(32)]))
    assert peers.sizes == (5, 0)
    for number in range(10):
        assert admit(peers, b"friend %d" % number)
    assert peers.sizes == (4, 3)  # a friend under way took one place of a stranger
    assert peers.answer(name_of(b"friend 6"), 1, b"", (), final=True) is None
    assert peers.answer(name_of(b"friend 7"), 1, b"", (), final=True) is not None


def name_of(who: bytes) -> bytes:
    return who.ljust(16)


def admit(peers: Peers, who: bytes, key: ClusterKey = KEY) -> bool:
    client = ClientHandshake(KEY, macs=True, name=name_of(who))
    challenge = peers.receive(who, envelope.lent([envelope.HELLO + client.hello]))
    assert isinstance(challenge, Respond)
    proven = client.prove(challenge_of(challenge.frames[0]))
    assert proven is not None
    proof = proven[0] if key == KEY else bytes(48)
    return isinstance(peers.receive(who, envelope.lent([envelope.PROOF + proof])), Respond)


def challenge_of(frame: bytes) -> Challenge:
    challenge = Challenge.parse(frame[1:])
    assert challenge is not None
    return challenge


def test_a_false_proof_does_not_end_a_session_and_a_proof_counts_once() -> None:
    peers = Peers(KEY, Limits(), macs=True)
    assert admit(peers, b"me")
    assert not admit(peers, b"me", OTHER_KEY)
    assert peers.answer(name_of(b"me"), 1, b"", (), final=True) is not None
    assert peers.receive(b"me", envelope.lent([envelope.PROOF + bytes(32)])) == Refused(
        "unproven", envelope.UNAUTHENTICATED
    )


def test_more_open_asks_than_allowed_are_left_and_come_again() -> None:
    talk = Talk(limits=Limits(open_requests=2))
    talk.answers = False
    for number in (1, 2, 3):
        talk.request(number)
    talk.step()
    assert (talk.heard, talk.refused) == ([1, 2], ["busy"])
    talk.answer(1)
    talk.step(1.1)
    talk.step()
    assert talk.heard == [1, 2, 3]


@given(st.integers(0, 10_000))
def test_whatever_is_lost_everything_is_answered_exactly_once_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    talk = Talk(retry=RetryPolicy(first_s=1, most_s=4, give_up_s=10_000))
    talk.drops = lambda: chance.random() < 0.3
    for number in range(1, 21):
        talk.request(number)
        talk.step(chance.random())
        if chance.random() < 0.1:
            talk.restart()
    talk.drops = lambda: False
    for _ in range(30):
        talk.step(1.0)
    assert sorted(talk.answered) == list(range(1, 21)), f"seed {seed}"
    assert set(talk.heard) == set(range(1, 21))
