"""The stub of the native module is what its bindings say, in the repository and in the installed package."""

from pathlib import Path

import hotrow
from native_stub import native_stub

STUB = Path(hotrow.__file__).with_name("_native.pyi")


def test_stub_is_the_one_that_the_bindings_generate() -> None:
    assert STUB.read_text() == native_stub(), "run `make stub` and commit src/hotrow/_native.pyi"
