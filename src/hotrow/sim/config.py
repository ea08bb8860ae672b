"""The settings of a simulated cluster."""

from pydantic import Field, ValidationInfo, field_validator

from hotrow.modes.base import RunFacts
from hotrow.sim.faults import Faults
from hotrow.sim.network import Network
from hotrow.sim.speeds import Speeds
from hotrow.sizes import MOST, Whole, number_text
from hotrow.spec import Spec


class ClusterConfig(Spec):
    """Workers, batches, and how fast and how faulty everything is. Workers are numbered from 0."""

    workers: Whole = Field(ge=1, le=1_000_000)
    local_batch: Whole = Field(ge=1, le=MOST)  # samples
    global_batch: Whole | None = Field(default=None, ge=1, le=MOST)  # samples; None: workers * local_batch
    shards: Whole = Field(default=1, ge=1, le=1024)  # that hold the rows; they matter where one crashes
    speeds: Speeds = Speeds()
    network: Network = Network()
    faults: Faults = Field(default=Faults(), validate_default=True)
    window_s: float | None = Field(default=None, gt=0)  # of the spread of the QPS; None: a 50th of the run
    lanes: Whole = Field(default=0, ge=0, le=10_000_000)  # intervals of workers' activities kept for a picture

    @property
    def facts(self) -> RunFacts:
        """The facts that a mode starts with."""
        return RunFacts(self.workers, self.local_batch, self.global_batch or self.workers * self.local_batch)

    # Combinations that are refused. Each check is at the later of its fields, so that the earlier one is known.

    @field_validator("global_batch")
    @classmethod
    def _holds_a_local_one(cls, value: int | None, info: ValidationInfo) -> int | None:
        local = info.data.get("local_batch", 0)
        if value is not None and value < local:
            raise ValueError(f"is below local_batch={local:,}: a global batch holds one local batch or more")
        return value

    @field_validator("faults")
    @classmethod
    def _faults_are_of_roles_that_are_there(cls, value: Faults, info: ValidationInfo) -> Faults:
        workers, shards = info.data.get("workers"), info.data.get("shards")
        if workers is None or shards is None:
            return value
        absent = next((crash.shard for crash in value.shard_crashes if crash.shard >= shards), None)
        if absent is not None:
            raise ValueError(
                f"shard {absent} crashes, but there are 0 to {shards - 1:,}: set shards, or another number"
            )
        late = {join.worker: join.at_s for join in value.joins}
        early = next((worker for worker in late if worker < workers), None)
        if early is not None:
            there = f"worker {early} is present from the start, as all below workers={workers:,}"
            raise ValueError(f"{there}: number those that join from {workers:,} on")
        slow = getattr(info.data.get("speeds"), "stragglers", ())
        strange = [each for group in slow for each in group.workers or () if each >= workers and each not in late]
        if strange:
            raise ValueError(
                f"speeds.stragglers name worker {strange[0]}, but there are 0 to {workers - 1:,}, and those in joins"
            )
        for crash in value.crashes:
            if crash.worker >= workers and crash.at_s < late.get(crash.worker, float("inf")):
                message = f"worker {crash.worker} crashes at {number_text(crash.at_s)} s and is not present"
                raise ValueError(f"{message}: there are 0 to {workers - 1:,}, and those in joins from their at_s on")
        return value
