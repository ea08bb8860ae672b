"""A run in a process of its own whose files may not grow beyond a limit: what a full disk does, without one.

python full_disk.py LIMIT TRAIN-ARGUMENTS...: once the first checkpoint of the run is whole, files end at LIMIT bytes.
"""

import resource
import signal
import sys
from typing import Any

from hotrow import checkpoint
from hotrow.cli import app
from hotrow.trainer import saving
from hotrow.trainer.write_pace import WritePace

limit, *arguments = sys.argv[1:]
whole = checkpoint.write_checkpoint


def save_then_limit(*given: Any, **named: Any) -> Any:
    """Write one checkpoint; from then on no file may be larger."""
    done = whole(*given, **named)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    return done


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write fails with EFBIG, which is an OSError as ENOSPC is
checkpoint.write_checkpoint = save_then_limit
saving.WritePace = lambda slowdown: WritePace(1.0)  # type: ignore  # else the run may end before the second one
app(arguments)
