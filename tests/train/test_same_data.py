"""Two real processes that meet: do they find out that their data differ?"""

import multiprocessing
import os
from pathlib import Path

import pytest
from torch import distributed as dist

from distrain.errors import DataError
from distrain.train.machine import check_same_data


def compare(rank: int, meeting: str, fingerprint: str, told: "multiprocessing.Queue[str]") -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        check_same_data(fingerprint, rank)
        told.put("the same")
    except DataError as error:
        told.put(str(error))
    dist.barrier()
    dist.destroy_process_group()
    told.close()
    told.join_thread()
    os._exit(0)  # see distrain.train.rank


@pytest.mark.parametrize(
    ("fingerprints", "expected"),
    [(("ab" * 32, "ab" * 32), "the same"), (("ab" * 32, "cd" * 32), "ranks [1] see other")],
)
def test_ranks_compare_fingerprints(
    tmp_path: Path, fingerprints: tuple[str, str], expected: str
) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    ranks = [
        spawn.Process(target=compare, args=(rank, str(tmp_path / "meeting"), fingerprint, told))
        for rank, fingerprint in enumerate(fingerprints)
    ]
    for process in ranks:
        process.start()
    answers = [told.get(timeout=60) for _ in ranks]
    for process in ranks:
        process.join(timeout=30)
        assert process.exitcode == 0
    assert all(expected in answer for answer in answers)


def test_a_single_rank_has_nobody_to_differ_from() -> None:
    check_same_data("ab" * 32, 0)
