"""CUDA C++ kernels, compiled at run time: for the few kernels where CUDA gains more than a fifth over Triton.

NVRTC comes with every CUDA build of torch, so nothing has to be installed, and no compiler runs when Hotrow is built.
Each kernel has a Triton kernel beside it that computes the same, which runs where NVRTC is not found.
"""

import ctypes
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hotrow.kernels.launch import raw_stream

log = logging.getLogger(__name__)
_enabled = True
_lock = threading.Lock()
_made: dict[Any, "CudaKernels | None"] = {}


class CudaError(RuntimeError):
    """NVRTC or the driver refused a call."""


@contextmanager
def triton_only() -> Iterator[None]:
    """Inside, Triton kernels run where CUDA kernels would: to compare the two."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def cuda_kernels(file: str, device: torch.device, **constants: int) -> "CudaKernels | None":
    """The kernels of a file of this package, compiled for a device with these macros; None where that is not possible.

    The first call for a device compiles; a failure is logged once.
    """
    if not _enabled or device.type != "cuda":
        return None
    wanted = file, device.index, tuple(sorted(constants.items()))
    with _lock:
        if wanted not in _made:
            try:
                _made[wanted] = CudaKernels(file, device, constants)
            except (AttributeError, CudaError, OSError) as error:  # AttributeError: an NVRTC too old
                log.warning("kernels of %s run in Triton: %s", file, error)
                _made[wanted] = None
        return _made[wanted]


class CudaKernels:
    """The kernels of one source file on one device."""

    def __init__(self, file: str, device: torch.device, constants: dict[str, int]) -> None:
        self._device = device
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # the context of the device is made, and this thread's
            source = files(__package__).joinpath(file).read_text()
            image = _compiled(source, torch.cuda.get_device_capability(), constants)
            module = ctypes.c_void_p()
            _check("cuModuleLoadData", _driver().cuModuleLoadData(ctypes.byref(module), image))
        self._module = module
        self._functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, blocks: int, threads: int, *arguments: Tensor | int) -> None:
        """Run a kernel in the current stream of the device; no blocks, no launch.

        Numbers take 64 bits here, of which a parameter of 32 bits reads the lower ones.
        """
        if not blocks:
            return
        function = self._functions.get(name) or self._find(name)
        values = [each.data_ptr() if isinstance(each, Tensor) else each for each in arguments]
        words = (ctypes.c_uint64 * len(values))(*values)
        first = ctypes.addressof(words)
        addresses = (ctypes.c_void_p * len(values))(*range(first, first + 8 * len(values), 8))
        stream = ctypes.c_void_p(raw_stream(self._device.index))
        here = self._device.index == torch.cuda.current_device()
        with nullcontext() if here else torch.cuda.device(self._device):
            _check(name, _driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, addresses, None))

    def _find(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        _check(name, _driver().cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()))
        self._functions[name] = function
        return function


def _compiled(source: str, capability: tuple[int, int], constants: dict[str, int]) -> bytes:
    """The program of a source text for a GPU of this capability."""
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    _check("nvrtcCreateProgram", nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None))
    try:
        options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
        options += [f"-D{name}={value}" for name, value in constants.items()]
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            raise CudaError(_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode())
        return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: Any, read: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check("nvrtc", size_of(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check("nvrtc", read(program, text))
    return text.raw


@cache
def _nvrtc() -> ctypes.CDLL:
    """The library that torch brings, or the one of a CUDA toolkit."""
    name = f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}"
    beside = sorted(Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/{name}"))
    return ctypes.CDLL(str(beside[0]) if beside else name)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(what: str, code: int) -> None:
    if code:
        raise CudaError(f"{what} failed with code {code}")
