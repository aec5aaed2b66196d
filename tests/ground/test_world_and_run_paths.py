import dataclasses
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.run_paths import RunPaths, new_job_id
from distrain.world import World


def test_alone_in_the_world():
    assert World() == World(0, 1, 0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        World().rank = 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((1, 1), r"rank 1 is not in 0\.\.0"),
        ((-1, 2), r"rank -1 is not in 0\.\.1"),
        ((0, 0), "rank 0 is not in"),
        ((0, 2, 1, 1), r"rank_of_node 1 is not in 0\.\.0"),
        ((0, 2, -1, 1), "rank_of_node -1"),
    ],
)
def test_a_rank_outside_its_world_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        World(*fields)


def test_every_file_of_a_run_has_its_own_name_in_its_directory():
    root = Path("runs/a")
    paths = RunPaths(root)
    files = [paths.spec, paths.metrics, paths.summary, paths.curves, paths.model, paths.logs]
    files += [paths.log(0), paths.log(11)]
    assert len(set(files)) == len(files)
    assert all(root in file.parents for file in files)
    assert paths.log(11).parent == paths.logs


@given(st.datetimes(min_value=datetime(2000, 1, 1)))
def test_a_job_id_tells_name_and_start_and_names_one_job(now):
    ids = {new_job_id("dlrm", now) for _ in range(3)}
    assert {job_id[:-4] for job_id in ids} == {f"dlrm-{now:%Y%m%d-%H%M%S}-"}
    assert len(new_job_id("dlrm")) == len(ids.pop())
