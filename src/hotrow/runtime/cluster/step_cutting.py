"""The cut of a step that a loss has broken, in modes whose trainers end every step together: stop, ask, decide."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from hotrow.errors import HotrowError
from hotrow.modes import Mode
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.losses import RoleLost, SavedRows
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision, decide_cut, decide_cut_without_trainers
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import CutStep, Query, QueryReply, Regroup, Settle, StepCut
from hotrow.types import RoleId

CUT_S = 300.0  # for trainers to end the batch that they compute, and to leave a group that a loss has broken


class StepCutting:
    """One cut. `trainers`: by worker, when the mode began."""

    def __init__(
        self,
        roles: Roles,
        parameters: RemoteParameters,
        mode: Mode,
        state: RunState,
        trainers: Mapping[int, RoleId],
    ) -> None:
        self._roles, self._parameters, self._mode = roles, parameters, mode
        self._state, self._trainers = state, trainers

    def stop(self) -> dict[RoleId, int]:
        """By trainer that is left, its dense steps; it computes nothing more, and answers for all its batches.

        Empty where none is left.
        """
        left = [name for name in self._trainers.values() if name not in self._roles.lost]
        reached = {}
        for name, each in zip(left, self._roles.request_all(left, CutStep(), deadline=False), strict=True):
            try:
                reached[name] = self._roles.answer(each, CUT_S).of(StepCut, name).step
            except PeerLost as error:
                if not self._roles.caused_by_loss([name], error):
                    raise
        return reached

    def decide(self, step: int, reached: dict[RoleId, int], dense_is_here: Callable[[], bool]) -> CutDecision:
        """What becomes of the open step, whose computed batches have all arrived; `reached`: as `stop` returned it.

        `dense_is_here`: whether the driver has the dense state after the last order.
        """
        replicas = self._merge_copies(step, reached) if reached and self._mode.dense == "local" else 0
        begun = self._is_begun(step)
        if not reached and dense_is_here():
            return CutDecision((), int(begun), dense_steps_lost=int(begun))
        if not reached:
            return decide_cut_without_trainers(step, self._last_checkpoint(), begun=begun)
        decision = decide_cut(step, reached, begun=begun, ahead=self._mode.most_in_flight)
        return replace(decision, replica_steps_lost=replicas)

    def _last_checkpoint(self) -> SavedRows:
        """For the dense state, which no trainer has any more; RoleLost where there is none."""
        if (saved := self._state.last_checkpoint()) is not None:
            return saved
        gone = "; ".join(f"{name} is gone: {why}" for name, why in self._roles.lost.items() if name.kind == "trainer")
        message = f"no trainer is left, and dense parameters of {self._mode.name} are in no checkpoint"
        raise RoleLost(f"{gone}; {message}: save some (run.checkpoint_every), or take more trainers")

    def _merge_copies(self, step: int, reached: dict[RoleId, int]) -> int:
        """KStep: merge the copies that are left; returns the steps of lost ones since the last merge.

        Where some have ended a merge that others failed in, theirs is the state.
        """
        lost = [name for name in self._trainers.values() if name in self._roles.lost]
        apart = self._parameters.apart_at(step - 1 if max(reached.values()) < step else step)
        while len(set(reached.values())) == 1:
            try:
                self._regroup_and_merge(step, reached)
                break
            except HotrowError as error:
                if not self._roles.caused_by_loss(reached, error):
                    raise
            reached.clear()
            reached.update(self.stop())
        return apart * len(lost)

    def _regroup_and_merge(self, step: int, reached: dict[RoleId, int]) -> None:
        meeting, left = self._roles.rendezvous(), list(self._roles.trainers)
        rpc = self._roles.rpc
        asked = {name: rpc.request(name, Regroup(meeting, rank, len(left))) for rank, name in enumerate(left)}
        self._roles.answers_of_ranks(asked, meeting)
        merge = Settle(step - 1, True, self._state.samples, self._state.lr_scale)
        for each in self._roles.request_all(left, merge, deadline=False):
            self._roles.answer(each, CUT_S)
        reached.clear()
        reached.update(dict.fromkeys(left, step))

    def _is_begun(self, step: int) -> bool:
        """Whether a shard has updated rows of a step before its order."""
        shards = self._roles.shards
        asked = zip(shards, self._roles.request_all(shards, Query("status")), strict=True)
        figures = [self._roles.answer(each).of(QueryReply, name).figures for name, each in asked]
        return any(each["begun_step"] == step for each in figures)
