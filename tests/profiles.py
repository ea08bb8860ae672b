"""How many examples hypothesis draws: HYPOTHESIS_PROFILE is "check", "ci" (if it is not set) or "search".

A test names the examples that it needs in CI. `make check` takes a third of them, which finds most faults while one
works; "search" takes ten times as many, and other ones at every run.
"""

import os
from typing import Any

import hypothesis

SHARES = {"check": 1 / 3, "ci": 1.0, "search": 10.0}
DEFAULT_EXAMPLES = 100
FEWEST = 5

profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def examples(count: int) -> int:
    """`count` as the profile has it."""
    return max(round(count * SHARES[profile]), min(count, FEWEST))


def load_profile() -> None:
    """Take the settings of the profile for every test."""
    if profile not in SHARES:
        raise ValueError(f"HYPOTHESIS_PROFILE={profile!r}: must be one of {', '.join(SHARES)}")
    repeats = profile != "search"
    kept: dict[str, Any] = {"derandomize": True, "database": None} if repeats else {}
    hypothesis.settings.register_profile("hotrow", max_examples=examples(DEFAULT_EXAMPLES), deadline=None, **kept)
    hypothesis.settings.load_profile("hotrow")
