"""Which embedding worker gets a batch, and when one that leaves may stop: without sockets."""

import pytest

from hotrow.client.pooled import peer_name
from hotrow.errors import ConfigError, InputError
from hotrow.runtime.cluster.embedding_members import EmbeddingMembers, Member
from hotrow.transport.ids import sample_id


def members(count: int) -> EmbeddingMembers:
    made = EmbeddingMembers()
    made.staying += [Member(peer_name(number), number, f"tcp://127.0.0.1:{number}") for number in range(count)]
    return made


def test_batches_go_by_turns_and_not_to_one_that_leaves() -> None:
    made = members(3)
    assert [made.assign(grant) for grant in (1, 2)] == [
        (peer_name(0), sample_id(0, 1)),
        (peer_name(1), sample_id(1, 2)),
    ]
    made.start_leaving(made.check_leave(peer_name(2)))
    assert [made.assign(grant)[0] for grant in (3, 4, 5)] == [peer_name(0), peer_name(1), peer_name(0)]


def test_one_that_leaves_may_stop_with_its_last_batch_and_is_named_once() -> None:
    made = members(2)
    for grant in (1, 2, 3):
        made.assign(grant)
    leaving = made.start_leaving(made.check_leave(peer_name(0)))
    assert made.drop([1]) == ([(peer_name(0), (sample_id(0, 1),))], [])
    assert made.drop([3]) == ([(peer_name(0), (sample_id(0, 3),))], [leaving])
    made.leaving.remove(leaving)
    assert made.drop(None) == ([(peer_name(1), (sample_id(1, 2),))], [])
    assert made.drop(None) == ([], [])


def test_names_and_numbers_are_taken_until_a_member_has_stopped() -> None:
    made = members(2)
    leaving = made.start_leaving(made.check_leave(peer_name(0)))
    with pytest.raises(ConfigError, match="number=0 of embedding worker 5: is taken"):
        made.check_join(peer_name(5), 0)
    made.leaving.remove(leaving)
    made.check_join(peer_name(5), 0)


def test_the_last_one_stays_and_without_any_there_is_no_batch() -> None:
    with pytest.raises(InputError, match="is the last embedding worker"):
        members(1).check_leave(peer_name(0))
    with pytest.raises(InputError, match="there is no such embedding worker; there are: none"):
        members(0).check_leave(peer_name(0))
    with pytest.raises(InputError, match="there is no embedding worker"):
        members(0).assign(1)


def test_a_lost_member_gets_no_more_batches_and_takes_those_it_held_with_it() -> None:
    made = members(3)
    for grant in range(1, 7):
        made.assign(grant)
    leaving = made.start_leaving(made.check_leave(peer_name(2)))
    lost = made.lose(peer_name(0))
    assert lost is not None
    assert (lost[0].grants, lost[1]) == ({1, 4}, None)
    gone = made.lose(peer_name(2))
    assert gone is not None
    assert (gone[0].grants, gone[1]) == ({3, 6}, leaving)
    assert made.lose(peer_name(0)) is None
    assert [each.name for each in made.present] == [peer_name(1)]
    assert made.drop([1, 4]) == ([], [])
