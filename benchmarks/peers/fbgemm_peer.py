"""FBGEMM's CPU table as a peer of `hotrow bench store`."""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.bench.peers import EPS, Adapter


class FbgemmPeer:
    """FBGEMM's CPU table, exact or row-wise Adagrad.

    One feature with one id per bag is its fastest layout for these batches: 26 features over the one table take 1.05
    times as long (row-wise 1.7 times), no pooling at all (PoolingMode.NONE) 5 to 13 times.
    """

    def __init__(self, rows: int, dim: int, *, lr: float, rowwise: bool) -> None:
        self._table = _fbgemm_table(rows, dim, lr, rowwise)
        self._table.init_embedding_weights_uniform(-0.01, 0.01)
        self.values: Tensor = self._table.split_embedding_weights()[0]
        self.state: Tensor = self._table.split_optimizer_states()[0][0]
        self.state.zero_()  # touches the pages, so that no step has to
        self._bag_starts = torch.arange(1)

    def step(self, rows: NDArray[np.int64], gradients: Tensor) -> None:
        if len(self._bag_starts) != len(rows) + 1:
            self._bag_starts = torch.arange(len(rows) + 1)
        self._table(torch.from_numpy(rows), self._bag_starts).backward(gradients)


def lack() -> str | None:
    """What is missing to make an FbgemmPeer here."""
    return None if find_spec("fbgemm_gpu") else "FBGEMM is not installed: pip install 'hotrow[bench]'"


def _fbgemm_table(rows: int, dim: int, lr: float, rowwise: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the CPU package warns of the GPU parts it lacks
        # Imported here: the package is optional and takes seconds to load.
        from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
        from fbgemm_gpu import split_table_batched_embeddings_ops_training as training
        from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    return training.SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD if rowwise else EmbOptimType.EXACT_ADAGRAD,
        learning_rate=lr,
        eps=EPS,
        pooling_mode=common.PoolingMode.SUM,
        weights_precision=SparseType.FP32,
        output_dtype=SparseType.FP32,
        bounds_check_mode=common.BoundsCheckMode.NONE,
    )


ADAPTER = Adapter(name="fbgemm", title="FBGEMM", versions={"fbgemm": "fbgemm-gpu-cpu"}, lack=lack, store=FbgemmPeer)
