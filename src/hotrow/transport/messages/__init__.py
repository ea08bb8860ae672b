"""Everything that is said on the wire, as typed headers. Tensors follow them as frames of their own.

rows       shards, asked by whoever needs rows; orders: shards, told by the coordinator
dense      dense parameters on shards
work       trainers, told by the coordinator
embedding  embedding workers
life       every role, and the process of the run

A header is decoded into exactly one `Message` or refused; nothing in it names a function to call.
"""

from hotrow.transport.messages.basis import Header, Values
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
from hotrow.transport.messages.life import (
    SENTENCE_MOST,
    Ask,
    Done,
    Fault,
    FaultKind,
    JoinRole,
    LeaveRole,
    Stop,
    Told,
)
from hotrow.transport.messages.orders import Apply, PartOf, Perform, Performed, Policy
from hotrow.transport.messages.rows import (
    Arrival,
    Block,
    Clear,
    Exchange,
    Exchanged,
    Export,
    Exported,
    Import,
    Pull,
    Push,
    Taken,
)
from hotrow.transport.messages.work import Begin, CloseStep, Features, Samples, Settle, Work, Worked

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
    | JoinRole
    | LeaveRole
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

__all__ = [
    "SENTENCE_MOST",
    "Apply",
    "Arrival",
    "Ask",
    "Begin",
    "Block",
    "Clear",
    "CloseStep",
    "Coded",
    "DenseGiven",
    "DensePulled",
    "Done",
    "Exchange",
    "Exchanged",
    "Export",
    "Exported",
    "Fault",
    "FaultKind",
    "Features",
    "Folded",
    "GiveDense",
    "Header",
    "IdPart",
    "Import",
    "JoinRole",
    "LeaveRole",
    "LookUp",
    "Meet",
    "Message",
    "PartOf",
    "Perform",
    "Performed",
    "Policy",
    "Pooled",
    "Pull",
    "PullDense",
    "PullPooled",
    "Push",
    "PushDense",
    "PushPooled",
    "Release",
    "Samples",
    "Settle",
    "Stop",
    "TakeDense",
    "Taken",
    "Told",
    "Values",
    "Vectors",
    "Work",
    "Worked",
]
