"""Rank processes on a Dask worker: starts them, passes on their events and output, stops them."""

from distrain.worker.interface import (
    choose_interface as choose_interface,
    ip_addresses as ip_addresses,
)
from distrain.worker.leaving import NannyLeavePlugin as NannyLeavePlugin
from distrain.worker.spec_check import check_spec as check_spec
from distrain.worker.supervisor import (
    BUILD_OP as BUILD_OP,
    COMMAND_OP as COMMAND_OP,
    EVENT_OP as EVENT_OP,
    LEAVING_OP as LEAVING_OP,
    SupervisorPlugin as SupervisorPlugin,
    rank_key as rank_key,
    supervise as supervise,
)
