"""Errors of what a trainer does for a request are the reply to it."""

import logging
from collections.abc import Callable

from hotrow.errors import HotrowError
from hotrow.transport.faults import fault_of
from hotrow.transport.messages import Fault
from hotrow.transport.request import Request

_log = logging.getLogger("hotrow.worker")


def reply_errors(request: Request, act: Callable[[], None]) -> None:
    """Answer the request with the error where the action fails."""
    try:
        act()
    except HotrowError as error:
        request.reply(fault_of(error))
    except Exception as error:  # of the user's model, or of a collective: the driver gets it
        _log.exception("a trainer failed")
        request.reply(Fault.of("internal", f"{type(error).__name__}: {error}"))
