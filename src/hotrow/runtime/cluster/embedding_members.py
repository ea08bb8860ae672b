"""Which embedding worker gets the next batch, and which batches each of them holds: values in, values out."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from hotrow.errors import ConfigError, InputError
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.ids import sample_id
from hotrow.types import RoleId

Dropped = list[tuple[RoleId, tuple[int, ...]]]  # by name, sample ids


@dataclass(slots=True, eq=False)
class Member:
    """An embedding worker that joined."""

    name: RoleId
    number: int
    address: str
    grants: set[int] = field(default_factory=set)  # whose gradients have not arrived


@dataclass(frozen=True, slots=True, eq=False)
class LeavingMember:
    """Gets no new batches, and stops when it has none. `left` is done then."""

    member: Member
    left: "Future[None]" = field(default_factory=uncancellable_future)


class EmbeddingMembers:
    """All members, staying and leaving. Not thread-safe."""

    def __init__(self) -> None:
        self.staying: list[Member] = []  # the first one gets the next batch
        self.leaving: list[LeavingMember] = []

    @property
    def present(self) -> list[Member]:
        """Those that have not stopped."""
        return [*self.staying, *(each.member for each in self.leaving)]

    @property
    def idle(self) -> list[LeavingMember]:
        """Leaving ones without a batch."""
        return [each for each in self.leaving if not each.member.grants]

    def check_join(self, name: RoleId, number: int) -> None:
        """ConfigError where a member has the name or the number."""
        if any(number == each.number or name == each.name for each in self.present):
            raise ConfigError(f"number={number} of {name}: is taken, embedding workers need different numbers")

    def check_leave(self, name: RoleId) -> Member:
        """The member of a name; InputError where it cannot leave."""
        found = next((each for each in self.staying if each.name == name), None)
        if found is None:
            there = ", ".join(each.name for each in self.staying) or "none"
            raise InputError(f"{name!r}: there is no such embedding worker; there are: {there}")
        if len(self.staying) == 1:
            raise InputError(f"{name!r}: is the last embedding worker, trainers need one: let another join first")
        return found

    def start_leaving(self, member: Member) -> LeavingMember:
        """Give a member no new batches."""
        self.staying.remove(member)
        self.leaving.append(LeavingMember(member))
        return self.leaving[-1]

    def lose(self, name: RoleId) -> tuple[Member, LeavingMember | None] | None:
        """Remove a lost member, which may have been leaving; None where there is no such member."""
        leaving = next((each for each in self.leaving if each.member.name == name), None)
        if leaving is not None:
            self.leaving.remove(leaving)
            return leaving.member, leaving
        found = next((each for each in self.staying if each.name == name), None)
        if found is None:
            return None
        self.staying.remove(found)
        return found, None

    def assign(self, grant: int) -> tuple[RoleId, int]:
        """The member that gets the ids of a grant's batch, by turns, and the sample id."""
        if not self.staying:
            raise InputError("there is no embedding worker: let one join first")
        member = self.staying.pop(0)
        self.staying.append(member)
        member.grants.add(grant)
        return member.name, sample_id(member.number, grant)

    def drop(self, grants: Iterable[int] | None) -> tuple[Dropped, list[LeavingMember]]:
        """Close grants (None: all); returns the sample ids that were open, and leaving members that have none now."""
        wanted = None if grants is None else set(grants)
        dropped: Dropped = []
        for member in self.present:
            mine = member.grants if wanted is None else member.grants & wanted
            if mine:
                dropped.append((member.name, tuple(sample_id(member.number, each) for each in sorted(mine))))
                member.grants = member.grants - mine
        names = {name for name, _ in dropped}
        return dropped, [each for each in self.leaving if each.member.name in names and not each.member.grants]
