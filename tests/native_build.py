"""Builds of the native code beside the installed module: C++ tests, and modules with sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def built(target: str, folder: Path, *settings: str) -> Path:
    """Configure in `folder` with CMake settings and build one target; returns the folder."""
    cmake = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))
    configure = [cmake, "-S", str(ROOT), "-B", str(folder), *(f"-D{setting}" for setting in settings)]
    output(*configure)
    output(cmake, "--build", str(folder), "--target", target, "--parallel", "2")
    return folder


def built_module(folder: Path, *settings: str) -> Path:
    """The Python module, built anew for this Python."""
    nanobind = output(sys.executable, "-m", "nanobind", "--cmake_dir").strip()
    here = (f"Python_EXECUTABLE={sys.executable}", f"nanobind_DIR={nanobind}")
    return next(built("_native", folder, *here, *settings).glob("_native*.so"))


def output(*command: str) -> str:
    """What a command prints; a failure shows all of it."""
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout}"
    return run.stdout


def sanitizer_environment() -> dict[str, str]:
    """Variables under which Python loads a module with AddressSanitizer and UBSan."""
    compiler = os.environ.get("CXX", "c++")
    # AddressSanitizer has to come first, and exceptions need the C++ library beside it.
    libraries = (output(compiler, f"-print-file-name={name}").strip() for name in ("libasan.so", "libstdc++.so"))
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}  # Python's leaks are not ours
    return {"LD_PRELOAD": " ".join(libraries), "PYTHONMALLOC": "malloc", **options}
