"""Everything that is said on the wire, as typed headers. Tensors follow them as frames of their own.

A header is decoded into exactly one of these or refused; nothing in it names a function to call. Numbers have bounds
here, so that a header which decodes cannot ask for more memory than a message may hold.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**31)]  # of rows, samples, floats
Number = Annotated[int, Meta(ge=0, le=2**62)]  # of grants, steps, orders: they only ever rise
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Sentence = Annotated[str, Meta(max_length=10_000)]
Values = Literal["fp32", "fp16-scaled"]
SampleId = Annotated[int, Meta(ge=0)]  # 64 bits: the first byte names an embedding worker, the others are the grant


class Header(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all that follows."""


class Block(Header, frozen=True):
    """Rows of one table. Frames follow for what it has: keys uint64, values (fp16-scaled: halves, scales), versions."""

    table: Name
    rows: Count
    dim: Annotated[int, Meta(ge=1, le=65_536)]
    keys: bool = False
    values: Values | None = None
    versions: bool = False


class Arrival(Header, frozen=True):
    """Apply a push as it comes, times a factor, instead of parking it: what the coordinator knew at the grant."""

    samples: Number  # trained so far
    lr_scale: float
    factor: float


class Push(Header, frozen=True):
    """Gradients of one batch for a shard's rows, each id once. Without `arrival` they are parked under their grant."""

    grant: Number
    worker: Count
    token: Number
    pulled_step: Number
    samples: Count
    blocks: tuple[Block, ...]
    arrival: Arrival | None = None


class Pull(Header, frozen=True):
    """Rows wanted, not before the coordinator's order `after` was performed. With `learn` absent ones are made."""

    after: Number
    samples: Number  # trained so far: the clock of expiry
    learn: bool
    versions: bool
    values: Values  # how they travel
    blocks: tuple[Block, ...]


class Exchange(Header, frozen=True, tag="exchange"):
    """The push of an earlier batch and the pull of the next, in one request. Frames: those of the push, then the pull.

    Without a push and a pull it asks only whether the shard is there.
    """

    incarnation: Number
    push: Push | None = None
    pull: Pull | None = None


class Taken(Header, frozen=True):
    """What became of a push. `again` says that it was here before and was not applied again."""

    again: bool = False
    refused: Count = 0  # rows whose gradient was not finite
    weightless: Count = 0
    missing: Count = 0


class Exchanged(Header, frozen=True, tag="exchanged"):
    """The answer to an exchange. Frames: values (and versions) of the pull."""

    incarnation: Number
    taken: Taken | None = None
    absent: Count = 0  # ids without a row in a pull that makes none
    blocks: tuple[Block, ...] = ()


class PartOf(Header, frozen=True):
    """A parked push as a step takes it."""

    grant: Number
    token: Number
    pulled_step: Number
    samples: Count
    weight: float


class Apply(Header, frozen=True):
    """A step of the coordinator's, for rows, dense parameters or both."""

    group: Literal["both", "dense", "embedding"]
    step: Number
    samples: Number  # trained up to and including it
    lr_scale: float
    parts: tuple[PartOf, ...]


class Perform(Header, frozen=True, tag="perform"):
    """What the coordinator decided, numbered. Orders are performed in turn; one that comes twice has no effect.

    `arrived` names grants that were applied on arrival: they may be forgotten.
    """

    incarnation: Number
    order: Number
    applies: tuple[Apply, ...]
    discards: tuple[Number, ...] = ()
    arrived: tuple[Number, ...] = ()


class Performed(Header, frozen=True, tag="performed"):
    """Since the last answer: what became of rows, and how late their gradients were as pairs of age and count."""

    order: Number
    refused: Count = 0
    weightless: Count = 0
    missing: Count = 0
    discarded: Count = 0
    lateness: tuple[tuple[Number, Number], ...] = ()


class Policy(Header, frozen=True, tag="policy"):
    """How shards treat what comes from now on: a mode begins. `staleness` is its policy as JSON.

    With `dense` they serve dense parameters too.
    """

    incarnation: Number
    order: Number
    average: Literal["batch", "present"]
    staleness: Annotated[str, Meta(max_length=100_000)] | None = None
    dense: bool = False
    step: Number | None = None  # dense steps so far: what is applied on arrival is stamped with them
    samples: Number | None = None  # trained so far


class PullDense(Header, frozen=True, tag="pull_dense"):
    """Dense parameters wanted, not before an order was performed."""

    after: Number


class DensePulled(Header, frozen=True, tag="dense_pulled"):
    """Frames: the parameters and buffers that the server holds, in the order of the model."""

    step: Number


class PushDense(Header, frozen=True, tag="push_dense"):
    """Dense gradients of one batch, parked under their grant. Frames: one per tensor that is present."""

    grant: Number
    worker: Count
    token: Number
    pulled_step: Number
    samples: Count
    present: tuple[bool, ...]
    buffers: bool = False  # changes of running figures follow


class Features(Header, frozen=True):
    """A part of a batch: frames follow for its keys (int64) and, unless every bag holds one id, its bounds (int64)."""

    table: Name
    kind: Literal["one", "bags", "sequence"]
    names: tuple[Name, ...]
    keys: Count
    pooling: Literal["mean", "sum"]


class Samples(Header, frozen=True):
    """A batch. Frames: numbers and labels (float32), then those of each part."""

    count: Count
    numbers: Count  # a sample
    labels: Count  # a sample; 0: there are none
    parts: tuple[Features, ...]


class Work(Header, frozen=True, tag="work"):
    """A grant and its batch, for a trainer. It is answered when all gradients are on their servers."""

    grant: Number
    worker: Count
    token: Number
    step: Number  # dense steps that were applied when it was granted
    after: Number  # the coordinator's order that lookups have to wait for
    trained: Number  # samples so far
    lr_scale: float
    factor: float | None  # of its rows' gradients, where shards apply them on arrival
    batch: Samples
    sample: SampleId | None = None  # under which an embedding worker has the ids; the batch comes without them then


class Worked(Header, frozen=True, tag="worked"):
    """The gradients of a grant are where they belong. Frames: the model's output before the update, float32."""

    grant: Number
    looked_step: Number
    pulled_step: Number
    samples: Count
    busy_s: float
    loss: float
    shape: tuple[Count, ...]  # of the output
    refused: Count = 0


class TakeDense(Header, frozen=True, tag="take_dense"):
    """The dense state that a shard goes on with: it serves some of its tensors. Frame: tensors (safetensors)."""

    step: Number
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None


class Begin(Header, frozen=True, tag="begin"):
    """A mode begins on a trainer, from the dense state that follows as a frame (safetensors).

    In all-reduce modes `ranks` trainers meet at `meeting`, and `share` batches of each make a step.
    """

    mode: Annotated[str, Meta(max_length=100_000)]  # as JSON
    order: Number
    step: Number
    rank: Count
    ranks: Count
    share: Count
    local_batch: Count
    trained: Number  # samples so far
    meeting: Annotated[str, Meta(max_length=1_000)]
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None  # what is no tensor of its state, as JSON
    seed: Number = 0  # of torch's chance on this rank: masks of dropout must not be the same everywhere


class CloseStep(Header, frozen=True, tag="close_step"):
    """No more batches come for a dense step: all ranks apply what they have."""

    step: Number
    lr_scale: float


class Settle(Header, frozen=True, tag="settle"):
    """KStep: a step is applied; each trainer moves its own dense parameters, by a merge of all or alone."""

    step: Number
    merge: bool
    trained: Number
    lr_scale: float


class GiveDense(Header, frozen=True, tag="give_dense"):
    """The dense state as it stands."""

    optimizer: bool  # with the optimizer's


class DenseGiven(Header, frozen=True, tag="dense_given"):
    """Frame: tensors (safetensors)."""

    step: Number
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None


class Export(Header, frozen=True, tag="export"):
    """Whole rows of a table, from a cursor on."""

    table: Name
    cursor: Number
    most: Count


class Exported(Header, frozen=True, tag="exported"):
    """Frames: keys uint64, values, state, one uint32 column per field. The end is a cursor of 0."""

    cursor: Number
    rows: Count
    fields: tuple[Name, ...]


class Import(Header, frozen=True, tag="import"):
    """Whole rows of a table to put in. Frames as those of an export."""

    table: Name
    rows: Count
    fields: tuple[Name, ...]


class Clear(Header, frozen=True, tag="clear"):
    """Forget all rows of a table: others come in their place."""

    table: Name


class Ask(Header, frozen=True, tag="ask"):
    """How a role is; `what` names the figures, and nothing is changed by it."""

    what: Literal["status", "ready", "meeting"]  # "meeting": a port that is free on its host


class Told(Header, frozen=True, tag="told"):
    """Figures by name."""

    role: Name
    figures: dict[str, float]


class Stop(Header, frozen=True, tag="stop"):
    """Leave in good order."""


class Done(Header, frozen=True, tag="done"):
    """It is done; there is nothing more to say."""


class Fault(Header, frozen=True, tag="fault"):
    """A request that was refused, with its reason as a sentence. Nothing was changed by it."""

    kind: Literal["input", "config", "stale", "closing", "internal"]
    sentence: Sentence


class Coded(Header, frozen=True):
    """The ids of one feature: as they are, each once with its samples, or each once and for every place which it is."""

    form: Literal["plain", "counted", "placed"]
    ids: Count
    unique: Count  # keys that travel


class IdPart(Header, frozen=True):
    """A part's ids, feature by feature in each of its frames: keys uint64; counts; samples or places; lengths of bags.

    Counts and lengths are as wide as they say, in bytes; a sample is uint16 up to 65,535 of them and uint32 beyond.
    """

    table: Name
    kind: Literal["one", "bags", "sequence"]
    names: tuple[Name, ...]
    pooling: Literal["mean", "sum"]
    coded: tuple[Coded, ...]
    counts: Literal[2, 4] = 4
    lengths: Literal[1, 2, 4] = 4


class LookUp(Header, frozen=True, tag="look_up"):
    """The ids of a batch, for an embedding worker: it looks them up, and keeps them until their gradients come."""

    sample: SampleId
    worker: Count  # the trainer that will ask for the vectors
    after: Number  # the coordinator's order that the lookup has to wait for
    trained: Number  # samples so far
    versions: bool
    count: Count  # of samples
    parts: tuple[IdPart, ...]


class Vectors(Header, frozen=True):
    """Vectors of a part or their gradients, fp32 or halves and scales as a block's; without values there are none.

    A row is all of a sample's, one scale for them; of a sequence it is one id's, without padding, and lengths follow,
    as many bytes wide as they say.
    """

    rows: Count
    wide: Count  # floats of a row
    values: Values | None
    lengths: Literal[0, 1, 2, 4] = 0


class PullPooled(Header, frozen=True, tag="pull_pooled"):
    """The vectors of a batch, once they are there."""

    sample: SampleId


class Pooled(Header, frozen=True, tag="pooled"):
    """Frames: those of each part in turn."""

    count: Count  # of samples
    parts: tuple[Vectors, ...]


class PushPooled(Header, frozen=True, tag="push_pooled"):
    """Gradients of a batch's vectors. It is answered when all shards have those of its rows."""

    sample: SampleId
    worker: Count
    token: Number
    pulled_step: Number
    parts: tuple[Vectors, ...]
    arrival: Arrival | None = None


class Folded(Header, frozen=True, tag="folded"):
    """The answer to gradients of vectors: what became of them on each shard."""

    taken: tuple[Taken, ...]


class Release(Header, frozen=True, tag="release"):
    """Batches whose gradients will not come: those named, or all of a trainer's."""

    samples: tuple[SampleId, ...] = ()
    worker: Count | None = None


class Meet(Header, frozen=True, tag="meet"):
    """An embedding worker is to be found there, or nowhere any more. For trainers."""

    number: Annotated[int, Meta(ge=0, le=255)]
    address: Annotated[str, Meta(min_length=1, max_length=1_000)] | None


Message = (
    Exchange
    | Exchanged
    | Perform
    | Performed
    | Policy
    | PullDense
    | DensePulled
    | PushDense
    | Work
    | Worked
    | TakeDense
    | Begin
    | CloseStep
    | Settle
    | GiveDense
    | DenseGiven
    | Export
    | Exported
    | Import
    | Clear
    | Ask
    | Told
    | Stop
    | Done
    | Fault
    | LookUp
    | PullPooled
    | Pooled
    | PushPooled
    | Folded
    | Release
    | Meet
)
