"""Decides what happens to jobs: pure functions of their states, events and the time."""

from distrain.lifecycle.job import AttemptFailure as AttemptFailure, Job as Job
from distrain.lifecycle.lifecycle import Lifecycle as Lifecycle
from distrain.lifecycle.messages import (
    Budgets as Budgets,
    Cancel as Cancel,
    ChangePriority as ChangePriority,
    CheckpointGang as CheckpointGang,
    EndGang as EndGang,
    Instruction as Instruction,
    LaunchFailed as LaunchFailed,
    LaunchGang as LaunchGang,
    Reported as Reported,
    Stimulus as Stimulus,
    StopGang as StopGang,
    Submit as Submit,
    TakeStacks as TakeStacks,
    Tick as Tick,
    WorkerLeaving as WorkerLeaving,
    WorkersChanged as WorkersChanged,
)
