"""A rank that waits in vain for others names them."""

import pytest
import torch
from torch.distributed import TCPStore

from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.train.control.rank_setup import MissingRanks, join_peers
from distrain.train.rank.failures import explain_failure


def test_ranks_that_do_not_join_are_named_without_a_traceback() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = Rendezvous("127.0.0.1", store.port, "a/1")
    assignment = Assignment("a", 1, World(0, 3), {}, "runs/a", meeting)
    with pytest.raises(MissingRanks) as caught:
        join_peers(assignment, torch.device("cpu"), 1.0)
    assert caught.value.message.startswith("ranks 1, 2 did not join")
    failure = explain_failure(caught.value, rank=0)
    assert (failure.reason, failure.traceback) == ("PeerLost", None)
