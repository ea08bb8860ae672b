"""Where the checkpoints are that a user names: a folder of them, one of them, or a run."""

from pathlib import Path

from hotrow.checkpoint.manifest import FILE
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import folders_in

IN_RUN = "checkpoint"  # the folder of a run that has its checkpoints
RUNS = "runs"


def find_checkpoints(where: str | Path | Place, runs: str | Path = RUNS) -> Place:
    """The folder itself, or `checkpoint` in it, or that of the run of this name in the folder `runs`.

    A folder without any is returned as it was named: whoever opens it tells what is wrong.
    """
    named = Place.of(where)
    places = [named, named.folder(IN_RUN)]
    if named.local is not None and not Path(named.name).is_absolute():
        places.append(Place.of(Path(runs, named.name, IN_RUN)))
    return next((place for place in places if place.has(FILE) or folders_in(place)), named)
