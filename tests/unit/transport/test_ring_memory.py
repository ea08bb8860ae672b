"""The shared memory of two rings: what a server opens, and what it refuses to open."""

import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotrow.errors import InputError
from hotrow.transport.ring_memory import PAGE, OfferedMemory, RingOffer, open_memory

RING = 4 * PAGE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are of Linux")


@pytest.fixture
def offered() -> Iterator[OfferedMemory]:
    memory = OfferedMemory(RING)
    yield memory
    memory.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_both_ends_see_the_same_bytes_and_the_same_nonce(offered: OfferedMemory) -> None:
    there = open_memory(offered.offer, RING)
    assert there.nonce == offered.memory.nonce
    assert len(there.mapped) == PAGE + 2 * RING
    there.mapped[PAGE] = 7
    assert offered.memory.mapped[PAGE] == 7
    there.close()


def test_ends_that_are_closed_leave_no_descriptor() -> None:
    before = descriptors()
    offered = OfferedMemory(RING)
    there = open_memory(offered.offer, RING)
    offered.close()
    there.close()
    del offered, there
    assert descriptors() == before


def test_the_offer_survives_its_encoding(offered: OfferedMemory) -> None:
    assert RingOffer.decode(offered.offer.encode()) == offered.offer
    with pytest.raises(InputError, match="40 bytes, not 39"):
        RingOffer.decode(offered.offer.encode()[:-1])


def test_only_the_owner_may_open_it_and_nobody_may_shorten_it(offered: OfferedMemory) -> None:
    found = os.fstat(offered.offer.memory)
    assert stat.S_IMODE(found.st_mode) == 0o600
    with pytest.raises(PermissionError):
        os.ftruncate(offered.offer.memory, PAGE)


def test_it_has_no_name_in_any_directory(offered: OfferedMemory) -> None:
    assert not [each for each in Path("/dev/shm").iterdir() if "hotrow-ring" in each.name]
    assert os.fstat(offered.offer.memory).st_nlink == 0


def test_the_other_end_of_the_pipe_tells_of_a_close(offered: OfferedMemory) -> None:
    there = open_memory(offered.offer, RING)
    offered.withdraw()
    with pytest.raises(BlockingIOError):
        os.read(there.pipe, 1)
    offered.close()
    assert os.read(there.pipe, 1) == b""
    there.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"token": bytes(16)}, "is another one here"),
        ({"pid": 2**22 + 1}, "no memory that can be opened here: No such file"),
        ({"memory": 10_000}, "no memory that can be opened here: No such file"),
        ({"pipe": 10_000}, "no memory that can be opened here: No such file"),
        ({"ring_bytes": RING - PAGE}, "bytes, its offer says"),
        ({"ring_bytes": RING + PAGE}, "allows a multiple of 4,096 up to 16,384"),
        ({"ring_bytes": RING - 1}, "allows a multiple of 4,096"),
        ({"ring_bytes": 0}, "allows a multiple of 4,096"),
    ],
)
def test_an_offer_that_is_not_as_it_says_is_refused(
    offered: OfferedMemory, change: dict[str, int | bytes], reason: str
) -> None:
    before = descriptors()
    with pytest.raises(InputError, match=reason):
        open_memory(offered.offer._replace(**change), RING)  # type: ignore[arg-type]
    assert descriptors() == before


def test_a_pipe_that_is_a_file_is_refused(offered: OfferedMemory, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("wb") as file, pytest.raises(InputError, match=r"is another one here.*secret"):
        open_memory(offered.offer._replace(pipe=file.fileno()), RING)


def test_memory_that_could_be_shortened_is_refused(offered: OfferedMemory) -> None:
    token = os.urandom(16)
    loose = os.memfd_create(f"hotrow-ring-{token.hex()}", os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, PAGE + 2 * RING)
    os.fchmod(loose, 0o600)
    offer = offered.offer._replace(memory=loose, token=token)
    with pytest.raises(InputError, match="not sealed"):
        open_memory(offer, RING)
    fcntl.fcntl(loose, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    open_memory(offer, RING).close()
    os.fchmod(loose, 0o644)
    with pytest.raises(InputError, match="mode 644"):
        open_memory(offer, RING)
    os.close(loose)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_memory_of_another_user_is_refused(offered: OfferedMemory) -> None:
    os.fchown(offered.offer.memory, 65534, 65534)
    with pytest.raises(InputError, match="of user 65534"):
        open_memory(offered.offer, RING)


def test_a_system_that_gives_no_memory_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    before = descriptors()
    for module, name in ((os, "ftruncate"), (mmap, "mmap"), (os, "pipe2")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            with pytest.raises(OSError, match="Cannot allocate memory"):
                OfferedMemory(RING)
    assert descriptors() == before
