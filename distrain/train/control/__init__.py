"""Ranks meet, choose devices, and agree on the step at which they save or stop."""

from distrain.train.control.control import Commands as Commands, Control as Control
from distrain.train.control.gate import StopAsked as StopAsked
from distrain.train.control.rank_setup import (
    check_same_data as check_same_data,
    choose_backend as choose_backend,
    choose_device as choose_device,
    join_peers as join_peers,
    leave_peers as leave_peers,
    process_as_it_was as process_as_it_was,
    seed_everything as seed_everything,
)
