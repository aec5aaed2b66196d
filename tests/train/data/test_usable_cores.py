"""Ranks of one machine or container share its cores; a rank that is bound to cores has those."""

import os

import pytest

from distrain.train.data import loaders


@pytest.mark.parametrize(
    ("own", "all_cores", "ranks", "usable"),
    [
        (16, 16, 4, 4),  # nothing is bound
        (4, 4, 4, 1),  # a container with four of the machine's cores
        (4, 16, 4, 4),  # each rank is bound to a quarter
        (2, 16, 4, 2),
        (2, 2, 8, 1),
    ],
)
def test_ranks_share_the_cores(
    own: int, all_cores: int, ranks: int, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = {0: set(range(own)), 1: set(range(all_cores))}
    monkeypatch.setattr(os, "sched_getaffinity", cores.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert loaders._usable_cores(ranks) == usable
