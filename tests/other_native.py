"""A plugin for pytest: `hotrow._native` is the file that HOTROW_NATIVE names, and not the installed one."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class OtherNative:
    """Finds the one module, before those who would find the installed one."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_file_location(name, os.environ["HOTROW_NATIVE"]) if name == "hotrow._native" else None


sys.meta_path.insert(0, OtherNative)
