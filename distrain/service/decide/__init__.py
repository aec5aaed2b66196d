"""Decides the service's next steps for jobs and clusters: pure functions of what was seen."""

from distrain.service.decide.admission import in_order as in_order
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
    JobOrder as JobOrder,
    NotBegun as NotBegun,
    Outcome as Outcome,
    Poll as Poll,
    Put as Put,
    ReadJobs as ReadJobs,
    Refusal as Refusal,
    SchedulerAnswer as SchedulerAnswer,
    Send as Send,
    Silence as Silence,
    TakeView as TakeView,
    Workers as Workers,
)
from distrain.service.decide.memory import Memory as Memory
from distrain.service.decide.passes import Pass as Pass, Replaced as Replaced
from distrain.service.decide.rules import (
    places_of as places_of,
    progress_every_s as progress_every_s,
)
from distrain.service.decide.telling import (
    CANCELLING as CANCELLING,
    HANDING_OVER as HANDING_OVER,
    NO_CONTACT_S as NO_CONTACT_S,
    QUEUED as QUEUED,
    STATES as STATES,
    UNKNOWN as UNKNOWN,
    event_document as event_document,
    shown as shown,
    utc as utc,
)
