"""`hotrow` in a process of its own that reports often, and whose checkpoints after the first may take longer.

python stoppable_train.py SAVE_S ARGUMENTS...: so many seconds longer.
"""

import sys
import time
from typing import Any

from hotrow import checkpoint
from hotrow.cli import app
from hotrow.trainer.trainer import Trainer

REPORT_S = 0.02

save_s, *arguments = sys.argv[1:]
write, begin = checkpoint.write_checkpoint, Trainer.__init__
saved: list[bool] = []


def write_slowly(*given: Any, **named: Any) -> Any:
    if saved:
        time.sleep(float(save_s))
    saved.append(True)
    return write(*given, **named)


def report_often(self: Trainer, *given: Any, **named: Any) -> None:
    begin(self, *given, **named, report_every_s=REPORT_S)


checkpoint.write_checkpoint = write_slowly
Trainer.__init__ = report_often  # type: ignore[method-assign]
app(arguments)
