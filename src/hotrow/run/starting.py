"""The folder of a run on a cluster while its roles are being started."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hotrow.disk import written
from hotrow.run.cluster_file import CLUSTER, ClusterFile
from hotrow.run.config import RunConfig
from hotrow.run.folder import free_folder
from hotrow.runtime.settings import Ray


@contextmanager
def starting_cluster(config: RunConfig, folder: Path, *, resumed: bool) -> Iterator[Path | None]:
    """The folder of a run whose cluster is being started, with a cluster.json to show it; None in one process.

    A new run gets its folder here, so that `hotrow cluster status` finds it before its roles answer. Where the start
    fails, the folder of a new run is removed, and that of a resumed one is as before.
    """
    if not isinstance(config.run.engine, Ray):
        yield None
        return
    is_first = not folder.parent.exists()
    place = folder if resumed else free_folder(folder.parent, folder.name)
    try:
        with written(place / CLUSTER, "the state of the cluster"):
            ClusterFile(place).announce()
        yield place
    except BaseException:
        (place / CLUSTER).unlink(missing_ok=True)
        if not resumed:
            shutil.rmtree(place, ignore_errors=True)
        if is_first:
            with suppress(OSError):  # another run was started in it
                folder.parent.rmdir()
        raise
