"""Decides what is to be done about jobs and clusters: pure functions of what was seen."""

from distrain.service.decide.admission import admit
from distrain.service.decide.memory import Memory
from distrain.service.decide.passes import Pass, Replaced
from distrain.service.decide.rules import (
    MAX_SCHEDULER_LOSSES,
    Action,
    Cancel,
    Finish,
    HandOver,
    PutAgain,
    SetPriority,
    Take,
    answered_cancel,
    ended,
    first_attempt,
    handed_over,
    reconcile,
    refused,
)
from distrain.service.decide.seen import ClusterNow, Sighting, Workers, is_final
from distrain.service.decide.shown import (
    CANCELLING,
    HANDING_OVER,
    NO_CONTACT_S,
    QUEUED,
    UNKNOWN,
    Shown,
    shown,
)

__all__ = [
    "Action",
    "CANCELLING",
    "Cancel",
    "ClusterNow",
    "Finish",
    "HANDING_OVER",
    "HandOver",
    "MAX_SCHEDULER_LOSSES",
    "Memory",
    "NO_CONTACT_S",
    "Pass",
    "PutAgain",
    "QUEUED",
    "Replaced",
    "SetPriority",
    "Shown",
    "Sighting",
    "Take",
    "UNKNOWN",
    "Workers",
    "admit",
    "answered_cancel",
    "ended",
    "first_attempt",
    "handed_over",
    "is_final",
    "reconcile",
    "refused",
    "shown",
]
