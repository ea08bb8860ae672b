"""Triton kernels for embeddings on a GPU, each beside its torch reference (docs/gpu.md).

Tensors on a GPU take the kernel, tensors on the CPU the reference; `TRITON_INTERPRET=1` takes the kernel there too, in
Triton's interpreter. Imports nothing but torch, Triton and `hotrow.errors`.
"""

from importlib.util import find_spec

from hotrow.errors import ConfigError

if find_spec("triton") is None:
    raise ConfigError("hotrow.kernels needs Triton, which is not installed: pip install 'hotrow[gpu]'")
