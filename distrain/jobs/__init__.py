"""What a job is: states, reasons, placements and views of it, as values that travel as JSON."""

from distrain.jobs.assignment import Assignment, RankPlacement, Rendezvous, Slot
from distrain.jobs.listing import Listing, find_job
from distrain.jobs.states import TRANSITIONS, InvalidTransition, JobState
from distrain.jobs.view import (
    JSON_VERSION,
    AttemptStarted,
    Checkpoints,
    Entry,
    JobView,
    Notice,
    Record,
    Restart,
    record_from_json,
)
from distrain.reasons import Reason

__all__ = [
    "Assignment",
    "Checkpoints",
    "Entry",
    "InvalidTransition",
    "JSON_VERSION",
    "JobState",
    "JobView",
    "Listing",
    "Notice",
    "RankPlacement",
    "Reason",
    "Record",
    "Rendezvous",
    "AttemptStarted",
    "Restart",
    "Slot",
    "TRANSITIONS",
    "find_job",
    "record_from_json",
]
