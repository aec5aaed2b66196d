import json

import pytest
from hypothesis import given, strategies as st

from distrain.errors import SpecError
from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.jobs.spec import parse_spec

SPEC = parse_spec(
    {"data": {"train": "day_0", "schema": "s.json"}, "model": {"kind": "dlrm"}},
    ["train.optimizer.lr=1e-3", "tags.team=ads"],
)
WORLDS = st.integers(1, 16).flatmap(
    lambda ranks: st.builds(
        lambda rank, per_node: World(rank, ranks, per_node),
        st.integers(0, ranks - 1),
        st.integers(1, ranks),
    )
)


@given(
    st.text(),
    st.integers(1, 9),
    WORLDS,
    st.text(),
    st.none() | st.builds(Rendezvous, st.text(), st.integers(1, 65535), st.text()),
)
def test_an_assignment_travels_whole_on_one_line(job_id, attempt, world, run_dir, rendezvous):
    spec = SPEC.model_dump(mode="json")
    assignment = Assignment(job_id, attempt, world, spec, run_dir, rendezvous)
    line = assignment.dumps()
    assert "\n" not in line
    assert Assignment.loads(line) == assignment
    assert parse_spec(Assignment.loads(line).spec) == SPEC


def test_what_is_no_assignment_is_refused():
    fields = json.loads(Assignment("a", 1, World(), {}, "/runs/a").dumps())
    with pytest.raises(ValueError, match=r"rank 1 is not in 0\.\.0"):
        Assignment.loads(json.dumps({**fields, "world": {"rank": 1, "num_ranks": 1}}))
    with pytest.raises(SpecError):
        parse_spec(Assignment.loads(json.dumps(fields)).spec)
