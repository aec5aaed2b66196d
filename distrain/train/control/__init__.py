"""Ranks meet, choose devices, and agree on the step at which they save or stop."""

from distrain.train.control.control import Control
from distrain.train.control.gate import StepGate, StopAsked
from distrain.train.control.kept_reports import KeptReports
from distrain.train.control.rank_setup import (
    check_same_data,
    choose_backend,
    choose_device,
    join_peers,
    leave_peers,
    process_as_it_was,
    seed_everything,
)
from distrain.train.control.stop_deadline import SHARE_FOR_AGREEMENT, StopDeadline, time_to_leave_s

__all__ = [
    "check_same_data",
    "choose_backend",
    "choose_device",
    "join_peers",
    "leave_peers",
    "process_as_it_was",
    "seed_everything",
    "Control",
    "KeptReports",
    "StopDeadline",
    "SHARE_FOR_AGREEMENT",
    "StepGate",
    "StopAsked",
    "time_to_leave_s",
]
