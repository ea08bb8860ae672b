"""All message headers. Tensors follow them as frames of their own.

rows       shards: rows and gradients
cache      shards: rows that caches keep; trainers and embedding workers: their caches
orders     shards: the driver's decisions
dense      dense parameters on shards
work       trainers: batches of the driver
saving     shards: their part of a checkpoint
scores     trainers: sketches of their predictions
evaluation trainers: batches to predict
embedding  embedding workers
loading    loaders
control    every role, and the process of the run

A header is decoded into exactly one `Message` or refused; no header names a function to call.
"""

from hotrow.transport.messages.cache import (
    CacheBlock,
    CachedRowsBlock,
    CacheExchange,
    CacheExchanged,
    CacheFlushed,
    FlushCache,
    OpenCaches,
)
from hotrow.transport.messages.control import (
    SENTENCE_MOST,
    Done,
    Fault,
    FaultKind,
    JoinRole,
    LeaveRole,
    Query,
    QueryReply,
    ShardAt,
    Stop,
)
from hotrow.transport.messages.dense import DenseGiven, DensePulled, GiveDense, PullDense, PushDense, TakeDense
from hotrow.transport.messages.embedding import (
    Coded,
    Folded,
    IdPart,
    LookUp,
    Meet,
    Pooled,
    PullPooled,
    PushPooled,
    Release,
    Vectors,
)
from hotrow.transport.messages.evaluation import (
    BeginEvaluation,
    CollectedErrors,
    EndEvaluation,
    EvaluateBatch,
    EvaluationScores,
)
from hotrow.transport.messages.header import Header
from hotrow.transport.messages.loading import (
    BatchesDue,
    BatchesMade,
    BatchGiven,
    BatchHead,
    CloseReading,
    FileFacts,
    ForgetLoader,
    ForgetSource,
    IdsGiven,
    KeepBatches,
    MalformedLine,
    NextBatches,
    OpenReading,
    PrepareSource,
    PullBatch,
    TroubleMet,
)
from hotrow.transport.messages.orders import (
    ApplyOrder,
    OrderPart,
    OrderResult,
    PartWeights,
    Perform,
    Policy,
    Prepare,
    ResumeShard,
)
from hotrow.transport.messages.rows import (
    Arrival,
    Clear,
    Exchange,
    Exchanged,
    Export,
    Exported,
    Import,
    LoadAhead,
    PullRest,
    PullRows,
    PushRows,
    RowBlockHeader,
    Taken,
)
from hotrow.transport.messages.saving import (
    CheckRows,
    CutMade,
    CutRows,
    CutWritten,
    EndCut,
    LoadRows,
    RowsChecked,
    RowsLoaded,
    TableLoaded,
    TableSource,
    TrackChanges,
    WriteCut,
)
from hotrow.transport.messages.scores import CollectedScores, CollectScores, ScorePoints
from hotrow.transport.messages.work import (
    BatchAt,
    BatchReply,
    BatchRequest,
    Begin,
    CloseStep,
    CutStep,
    Features,
    LeaveMeeting,
    Regroup,
    Samples,
    Settle,
    StepCut,
)

Message = (
    Exchange
    | Exchanged
    | PullRest
    | LoadAhead
    | BatchesDue
    | CacheExchange
    | CacheExchanged
    | FlushCache
    | OpenCaches
    | CacheFlushed
    | Perform
    | OrderResult
    | Policy
    | Prepare
    | ResumeShard
    | PullDense
    | DensePulled
    | PushDense
    | BatchRequest
    | BatchReply
    | TakeDense
    | Begin
    | LeaveMeeting
    | CloseStep
    | CutStep
    | StepCut
    | Regroup
    | Settle
    | GiveDense
    | DenseGiven
    | Export
    | Exported
    | Import
    | Clear
    | Query
    | QueryReply
    | JoinRole
    | LeaveRole
    | ShardAt
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
    | CollectScores
    | CollectedScores
    | BeginEvaluation
    | EvaluateBatch
    | EndEvaluation
    | EvaluationScores
    | PrepareSource
    | OpenReading
    | NextBatches
    | BatchesMade
    | KeepBatches
    | CloseReading
    | ForgetLoader
    | ForgetSource
    | PullBatch
    | BatchGiven
    | IdsGiven
    | TrackChanges
    | CutRows
    | CutMade
    | WriteCut
    | CutWritten
    | EndCut
    | CheckRows
    | RowsChecked
    | LoadRows
    | RowsLoaded
)

__all__ = [
    "SENTENCE_MOST",
    "ApplyOrder",
    "Arrival",
    "BatchAt",
    "BatchGiven",
    "BatchHead",
    "BatchReply",
    "BatchRequest",
    "BatchesDue",
    "BatchesMade",
    "Begin",
    "BeginEvaluation",
    "CacheBlock",
    "CacheExchange",
    "CacheExchanged",
    "CacheFlushed",
    "CachedRowsBlock",
    "CheckRows",
    "Clear",
    "CloseReading",
    "CloseStep",
    "Coded",
    "CollectScores",
    "CollectedErrors",
    "CollectedScores",
    "CutMade",
    "CutRows",
    "CutStep",
    "CutWritten",
    "DenseGiven",
    "DensePulled",
    "Done",
    "EndCut",
    "EndEvaluation",
    "EvaluateBatch",
    "EvaluationScores",
    "Exchange",
    "Exchanged",
    "Export",
    "Exported",
    "Fault",
    "FaultKind",
    "Features",
    "FileFacts",
    "FlushCache",
    "Folded",
    "ForgetLoader",
    "ForgetSource",
    "GiveDense",
    "Header",
    "IdPart",
    "IdsGiven",
    "Import",
    "JoinRole",
    "KeepBatches",
    "LeaveMeeting",
    "LeaveRole",
    "LoadAhead",
    "LoadRows",
    "LookUp",
    "MalformedLine",
    "Meet",
    "Message",
    "NextBatches",
    "OpenCaches",
    "OpenReading",
    "OrderPart",
    "OrderResult",
    "PartWeights",
    "Perform",
    "Policy",
    "Pooled",
    "Prepare",
    "PrepareSource",
    "PullBatch",
    "PullDense",
    "PullPooled",
    "PullRest",
    "PullRows",
    "PushDense",
    "PushPooled",
    "PushRows",
    "Query",
    "QueryReply",
    "Regroup",
    "Release",
    "ResumeShard",
    "RowBlockHeader",
    "RowsChecked",
    "RowsLoaded",
    "Samples",
    "ScorePoints",
    "Settle",
    "ShardAt",
    "StepCut",
    "Stop",
    "TableLoaded",
    "TableSource",
    "TakeDense",
    "Taken",
    "TrackChanges",
    "TroubleMet",
    "Vectors",
    "WriteCut",
]
