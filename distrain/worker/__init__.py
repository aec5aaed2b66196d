"""Rank processes on a Dask worker: starts them, passes on their events and output, stops them."""

from distrain.worker.interface import choose_interface, ip_addresses
from distrain.worker.leaving import NannyLeavePlugin
from distrain.worker.spec_check import check_spec
from distrain.worker.supervisor import (
    BUILD_OP,
    COMMAND_OP,
    EVENT_OP,
    LEAVING_OP,
    SupervisorPlugin,
    rank_key,
    supervise,
)

__all__ = [
    "BUILD_OP",
    "COMMAND_OP",
    "EVENT_OP",
    "LEAVING_OP",
    "NannyLeavePlugin",
    "SupervisorPlugin",
    "check_spec",
    "choose_interface",
    "ip_addresses",
    "rank_key",
    "supervise",
]
