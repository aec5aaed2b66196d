from datetime import datetime

import pytest
from hypothesis import given, strategies as st

from distrain.jobs.assignment import World
from distrain.jobs.run_paths import RunPaths, new_job_id


def test_a_rank_outside_its_world_is_refused():
    for fields in ((1, 1), (-1, 2), (0, 0), (0, 2, 0)):
        with pytest.raises(ValueError, match="rank"):
            World(*fields)


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
