"""Why a role ended, in one sentence, from the exception that Ray raises for it.

Ray's exceptions share `RayError` and little else. Some are a page of text: tables of processes, advice on Ray's
settings.
"""

import re

from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

# Ray 2.60 says "was 1.58GB used / 23.54GB limit", older ones "was 14.6GB / 15.3GB (0.95)".
_AMOUNT = r"[\d.]+ ?[KMGT]?B"
_MEMORY = re.compile(rf"\(IP: (?P<host>[^,)]+).*?was (?P<used>{_AMOUNT})(?: used)? / (?P<limit>{_AMOUNT})", re.DOTALL)
_OF_ROLE = re.compile(rf"memory used=(?P<used>{_AMOUNT})")
_HOST = re.compile(r"^\tip: (?P<host>\S+)$", re.MULTILINE)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: .*", re.MULTILINE | re.DOTALL)  # the last lines of a traceback


def reason(error: RayError) -> str:
    """One sentence, without a period at its end."""
    text = str(error).strip()
    match error:
        case RayTaskError():
            return _joined_lines(f"{type(error.cause).__name__}: {error.cause}")
        case OutOfMemoryError():
            return _out_of_memory(text)
        case RayActorError() if error.actor_init_failed and (raised := _RAISED.search(text)):
            return _joined_lines(raised[0])
        case RayActorError():
            host = _HOST.search(text)
            return first_line(text) + (f" (on host {host['host']})" if host else "")
    return f"{type(error).__name__}: {first_line(text)}"


def _out_of_memory(text: str) -> str:
    """The host that ran out of memory, and how much the role used."""
    found, own = _MEMORY.search(text), _OF_ROLE.search(text)
    if found is None:
        return f"Ray ended it because its host ran out of memory ({first_line(text)})"
    role = "" if own is None else f", {own['used']} by this role"
    figures = f"{found['used']} of {found['limit']} in use{role}"
    remedy = "give it more memory, or spread the run over more shards and hosts"
    return f"Ray ended it because its host {found['host']} ran out of memory ({figures}): {remedy}"


def first_line(text: str) -> str:
    """The first line of an exception's text, which may be empty or a page."""
    lines = text.strip().splitlines()
    return lines[0].rstrip(".") if lines else "no reason given"


def _joined_lines(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
