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
        (16, None, 8, 8),  # the kernel refuses to name the machine's; it has 64
    ],
)
def test_ranks_share_the_cores(
    own: int, all_cores: int | None, ranks: int, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def affinity(pid: int) -> range:
        cores = {0: own, 1: all_cores}[pid]
        if cores is None:
            raise PermissionError(1, "Operation not permitted")
        return range(cores)

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert loaders._usable_cores(ranks) == usable
