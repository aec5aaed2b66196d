"""Decides what happens to jobs: pure functions of their states, events and the time."""

from distrain.machine.job import Failure, Job
from distrain.machine.machine import Machine
from distrain.machine.messages import (
    Budgets,
    Cancel,
    ChangePriority,
    CheckpointGang,
    EndGang,
    Instruction,
    LaunchFailed,
    LaunchGang,
    Reported,
    Stimulus,
    StopGang,
    Submit,
    TakeStacks,
    Tick,
    WorkerLeaving,
    WorkersChanged,
)

__all__ = [
    "Budgets",
    "Cancel",
    "ChangePriority",
    "CheckpointGang",
    "EndGang",
    "Failure",
    "Instruction",
    "Job",
    "LaunchFailed",
    "LaunchGang",
    "Machine",
    "Reported",
    "Stimulus",
    "StopGang",
    "Submit",
    "TakeStacks",
    "Tick",
    "WorkerLeaving",
    "WorkersChanged",
]
