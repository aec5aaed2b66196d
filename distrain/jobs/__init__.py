"""What a job is: states, reasons, placements and views of it, as values that travel as JSON."""

from distrain.jobs.assignment import (
    Assignment as Assignment,
    RankPlacement as RankPlacement,
    Rendezvous as Rendezvous,
    Slot as Slot,
    World as World,
)
from distrain.jobs.states import (
    TRANSITIONS as TRANSITIONS,
    InvalidTransition as InvalidTransition,
    JobState as JobState,
)
from distrain.jobs.status import (
    FIGURES as FIGURES,
    FINAL_STATES as FINAL_STATES,
    LARGEST as LARGEST,
    JobFigures as JobFigures,
    JobStatus as JobStatus,
    figures_in as figures_in,
    find_id as find_id,
    find_job as find_job,
    finite as finite,
    gpus_in as gpus_in,
    is_storable as is_storable,
    metrics_in as metrics_in,
    storable as storable,
    targets_in as targets_in,
    time_left as time_left,
)
from distrain.jobs.view import (
    AttemptStarted as AttemptStarted,
    Checkpoints as Checkpoints,
    Entry as Entry,
    JobView as JobView,
    Notice as Notice,
    Record as Record,
    Restart as Restart,
    known_fields as known_fields,
    record_from_json as record_from_json,
    record_of_model as record_of_model,
)
from distrain.reasons import Reason as Reason
