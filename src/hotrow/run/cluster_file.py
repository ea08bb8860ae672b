"""`cluster.json` in the folder of a running run: the addresses of its roles, for `hotrow cluster` and other readers.

A key that was made for the run lies beside it in `cluster.key`, readable by its user alone. The run removes both at its
end. Files of a killed run are removed by the next run in the same parent folder, or by `hotrow cluster status`.
"""

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hotrow.errors import ConfigError, InputError
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId

CLUSTER, NEW, KEY = "cluster.json", "cluster.json.new", "cluster.key"


class ClusterFile:
    """Writes down where the roles of a run are, as often as that changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: ClusterFacts | None = None
        self.announced = False  # the file exists and marks the roles as starting

    def write(self, facts: ClusterFacts, key: Path | None, control_server: str | None = None) -> None:
        """Replace the file if `facts` changed; `key` is the file the key was read from, None for a key of this run.

        `control_server`: where the run itself listens.
        """
        if facts == self._written:
            return
        if self._written is None:  # before anything is written: the sweep visits this folder too
            sweep(self._folder.parent)
            for name in (KEY, NEW, CLUSTER):  # of a run that was killed, on whatever host
                (self._folder / name).unlink(missing_ok=True)
        document = {
            **_process(),
            "security": facts.security,
            "key": None if facts.key is None else KEY if key is None else str(key.absolute()),
            "control_server": control_server,
            "roles": {name: asdict(place) for name, place in facts.roles.items()},
        }
        new = self._folder / NEW
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        # The key comes second: if the run is killed here, the file that names its owner is there for the sweep.
        if self._written is None and facts.key is not None and key is None:
            facts.key.write(self._folder / KEY)
        new.replace(self._folder / CLUSTER)  # a concurrent reader has one file or the other, each whole
        self._written = facts

    def announce(self) -> None:
        """Write down that the roles are being started: there is no address yet."""
        document = {**_process(), "starting": True, "security": "off", "key": None, "roles": {}}
        (self._folder / CLUSTER).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        self.announced = True

    def remove(self) -> None:
        """Delete the files: the run has ended."""
        if self._written is not None or self.announced:
            (self._folder / CLUSTER).unlink(missing_ok=True)
            (self._folder / KEY).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Known:
    """The cluster of a run, as its folder describes it."""

    folder: Path
    pid: int  # of the run itself
    node: str
    facts: ClusterFacts
    control_server: str | None = None  # where the run itself listens
    started: int | None = None  # its process, in ticks since the machine booted: another may get its pid
    pids: str | None = None  # the namespace that its pid is of
    starting: bool = False  # its roles are being started: none answers yet

    @property
    def is_gone(self) -> bool:
        """Whether the run was a process of this machine that has ended."""
        return _is_gone(self.node, self.pid, self.started, self.pids)


def _process() -> dict[str, Any]:
    """This process, as `_is_gone` looks for it."""
    pid = os.getpid()
    return {"pid": pid, "started": _started(pid), "pids": _pid_namespace(), "node": socket.gethostname()}


def sweep(parent: Path) -> list[Path]:
    """Remove what killed runs of this user left in the folders of `parent`; return those folders.

    A folder that cannot be read or changed (an archive, one of another user) is left as it is.
    """
    try:
        folders = sorted(parent.iterdir())
    except OSError:
        return []
    return [folder for folder in folders if remove_left(folder)]


def remove_left(folder: Path) -> bool:
    """Remove the files of a killed run of this user; False: there are none, or they could not be removed.

    The files are read right before: the folder may hold a resumed run by now, whatever it held a moment ago.
    """
    owners = [path for path in (folder / NEW, folder / CLUSTER) if os.path.lexists(path)]
    if not owners or not all(map(_is_left, owners)):
        return False
    try:
        for path in (folder / KEY, *owners):  # the file that names the owner of the key is removed last
            path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _is_left(path: Path) -> bool:
    """Whether a run of this user on this machine wrote it and has ended; False for a file that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if path.lstat().st_uid == os.geteuid():
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return _is_gone(document["node"], int(document["pid"]), document.get("started"), document.get("pids"))
    return False


def _is_gone(node: str, pid: int, started: int | None, pids: str | None) -> bool:
    """Whether a process has ended; False for one of another machine or another PID namespace, which is not visible."""
    if node != socket.gethostname() or pids not in (None, _pid_namespace()):
        return False
    now = _started(pid)
    return now is None or started not in (None, now)


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine booted; None: there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def find_cluster(given: Path | None, parent: Path = Path("runs")) -> Path:
    """The folder of a run on a cluster: as given, or by its name under `parent`; the newest one if nothing is given."""
    if given is not None:
        places = [given, parent / given]
        found = [folder for folder in places if os.path.isfile(folder / CLUSTER)]
        if not found:
            looked = " nor in ".join(str(place) for place in places)
            message = f"no run is training on a cluster: there is no {CLUSTER} in {looked}"
            raise ConfigError(f"{message}: a run with engine = 'ray' writes it while it trains")
        return found[0]
    runs = [folder for folder in parent.iterdir() if os.path.isfile(folder / CLUSTER)] if parent.is_dir() else []
    if not runs:
        message = f"no run is training on a cluster: there is no {CLUSTER} in the folders of {parent.absolute()}"
        raise ConfigError(f"{message}: name the folder of a run, as `hotrow cluster status DIR/NAME`")
    return max(runs, key=lambda folder: (folder / CLUSTER).stat().st_mtime)


def read_cluster(folder: Path) -> Known:
    """What `write` left, with its key."""
    path = folder / CLUSTER
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        roles = {RoleId.parse(name): RoleAddress(**place) for name, place in document["roles"].items()}
        kept = document["key"]
        key = None if kept is None else ClusterKey.read(folder / kept)  # a whole path stays as it is
        facts = ClusterFacts(document["security"], key, roles)
        process = document.get("started"), document.get("pids"), bool(document.get("starting"))
        return Known(
            folder, int(document["pid"]), str(document["node"]), facts, document.get("control_server"), *process
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read: {error}: a run writes it while it trains") from None
