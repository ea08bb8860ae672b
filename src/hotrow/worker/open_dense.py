"""The dense strategy of a mode."""

from hotrow.modes import Mode
from hotrow.server.replicas import k_step_adam
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Begin
from hotrow.worker.all_reduce_dense import AllReduceDense
from hotrow.worker.core import Learner
from hotrow.worker.dense_strategy import DenseStrategy, LearningRates
from hotrow.worker.local_dense import LocalDense
from hotrow.worker.server_dense import ServerDense
from hotrow.worker.setup import TrainerSetup


def open_dense(mode: Mode, begin: Begin, setup: TrainerSetup, learner: Learner, wire: RpcClient) -> DenseStrategy:
    """Where a trainer has its dense parameters in a mode that begins."""
    spec = setup.role.spec
    match mode.dense:
        case "server":
            return ServerDense(learner, wire, setup.places, setup.shards[0], step=begin.step)
        case "local":
            optimizer = k_step_adam(spec.optimizer)
            return LocalDense(learner, optimizer, setup.base_lrs, step=begin.step, clip=spec.clip)
        case "all-reduce":
            return AllReduceDense(
                learner,
                None if spec.optimizer is None else LearningRates(spec.optimizer, setup.base_lrs),
                share=begin.share,
                local_batch=begin.local_batch,
                step=begin.step,
                trained=begin.trained,
                clip=spec.clip,
            )
