"""Compile kernels for a GPU that is not there: a launch compiles with the arguments it was given, and runs nothing.

`python tests/kernel_compile.py MODULE NAME ...` makes the calls of a module (its dict CALLS) in this way and prints a
line per kernel. It needs a process of its own: Triton decides when a kernel is defined whether its interpreter runs it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

H200 = GPUTarget("cuda", 90, 32)
ALIGNED = [["tt.divisibility", 16]]
WARPS_MAX = 32  # of a program: more compile, and do not run
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")


@contextmanager
def compiling(target: GPUTarget = H200) -> Iterator[list[str]]:
    """Inside, launches compile for `target`; yields the names of the kernels, with the bytes of their programs."""
    names: list[str] = []

    def compile_only(kernel: Any, *values: Any, grid: Any, warmup: bool, **named: Any) -> None:
        assert named.get("num_warps", 4) <= WARPS_MAX, kernel.__name__
        options = {name: named.pop(name) for name in OPTIONS if name in named}
        arguments = dict(zip(kernel.arg_names, values, strict=False)) | named
        assert set(arguments) == set(kernel.arg_names), set(arguments) ^ set(kernel.arg_names)
        fixed = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
        fixed |= {name for name, value in arguments.items() if value is None}
        signature = {name: "constexpr" if name in fixed else mangle_type(arguments[name]) for name in kernel.arg_names}
        constants = {name: arguments[name] for name in fixed}
        aligned = {(place,): ALIGNED for place, each in enumerate(kernel.params) if _is_aligned(each, arguments)}
        done = triton.compile(ASTSource(kernel, signature, constants, aligned), target=target, options=options)
        names.append(f"{kernel.__name__} {len(done.asm['cubin'])}")

    with mock.patch.object(JITFunction, "run", compile_only), mock.patch("hotrow.kernels.launch.forced", True):
        yield names


def _is_aligned(parameter: Any, arguments: dict[str, Any]) -> bool:
    """Whether a launch would tell the compiler that 16 divides an address or a number: loads become vectors then."""
    value = arguments[parameter.name]
    if isinstance(value, torch.Tensor):
        return value.data_ptr() % 16 == 0
    specialised = not (parameter.is_constexpr or parameter.do_not_specialize)
    return specialised and isinstance(value, int) and value % 16 == 0


if __name__ == "__main__":
    calls = import_module(sys.argv[1]).CALLS
    with compiling() as found:
        for name in sys.argv[2:] or calls:
            calls[name]()
    print("\n".join(found))
