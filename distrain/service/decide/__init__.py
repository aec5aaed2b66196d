"""Decides the service's next steps for jobs and clusters: pure functions of what was seen."""

from distrain.service.decide.admission import admit as admit
from distrain.service.decide.effects import (
    Accepted as Accepted,
    Begin as Begin,
    Change as Change,
    Commit as Commit,
    CountAttempts as CountAttempts,
    CountRanks as CountRanks,
    Effect as Effect,
    FindJob as FindJob,
    FinishRun as FinishRun,
    NotBegun as NotBegun,
    Order as Order,
    Outcome as Outcome,
    Poll as Poll,
    Put as Put,
    ReadJobs as ReadJobs,
    Refused as Refused,
    Send as Send,
    Silence as Silence,
    TakeView as TakeView,
    Told as Told,
)
from distrain.service.decide.memory import Memory as Memory
from distrain.service.decide.passes import Pass as Pass, Replaced as Replaced
from distrain.service.decide.rules import (
    MAX_SCHEDULER_LOSSES as MAX_SCHEDULER_LOSSES,
    Action as Action,
    Finish as Finish,
    HandOver as HandOver,
    PutAgain as PutAgain,
    Take as Take,
    answered_cancel as answered_cancel,
    cancel as cancel,
    ended as ended,
    first_attempt as first_attempt,
    handed_over as handed_over,
    progress_every_s as progress_every_s,
    reconcile as reconcile,
    refused as refused,
)
from distrain.service.decide.seen import ClusterNow as ClusterNow, Workers as Workers
from distrain.service.decide.telling import (
    CANCELLING as CANCELLING,
    HANDING_OVER as HANDING_OVER,
    NO_CONTACT_S as NO_CONTACT_S,
    QUEUED as QUEUED,
    STATES as STATES,
    UNKNOWN as UNKNOWN,
    Shown as Shown,
    event_document as event_document,
    shown as shown,
    utc as utc,
)
