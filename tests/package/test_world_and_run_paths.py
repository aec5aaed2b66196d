import dataclasses
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from distrain.jobs.assignment import World
from distrain.jobs.run_paths import RunPaths, new_job_id


def test_alone_in_the_world():
    assert World() == World(0, 1, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        World().rank = 1


def test_a_rank_outside_its_world_is_refused():
    for fields in ((1, 1), (-1, 2), (0, 0), (0, 2, 0)):
        with pytest.raises(ValueError, match="rank"):
            World(*fields)


def test_every_file_of_a_run_has_its_own_name_in_its_directory():
    root = Path("runs/a")
    paths = RunPaths(root)
    files = [paths.spec, paths.run, paths.metrics, paths.summary, paths.curves, paths.model]
    files += [paths.checkpoints, paths.logs, paths.audits]
    for of_a_rank in (paths.log, paths.stacks, paths.audit):
        files += [of_a_rank(rank, attempt) for rank in (0, 11) for attempt in (1, 2)]
    assert len(set(files)) == len(files)
    assert all(root in file.parents for file in files)
    assert paths.log(11, 2).parent.parent == paths.logs


def test_the_attempts_are_those_that_left_something(tmp_path):
    paths = RunPaths(tmp_path)
    assert paths.attempts() == ()
    for path in (paths.log(0, 10), paths.log(1, 10), paths.log(0, 2), paths.audit(0, 3)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (paths.logs / "attempt-x").mkdir()
    (paths.logs / "notes.txt").touch()
    assert paths.attempts() == (2, 3, 10)


@given(st.datetimes(min_value=datetime(2000, 1, 1)))
def test_a_job_id_tells_name_and_start_and_names_one_job(now):
    ids = {new_job_id("dlrm", now) for _ in range(3)}
    assert {job_id[:-8] for job_id in ids} == {f"dlrm-{now:%Y%m%d-%H%M%S}-"}
    assert len(new_job_id("dlrm")) == len(ids.pop())
