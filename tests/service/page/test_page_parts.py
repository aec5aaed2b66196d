"""What differs between specs, and the last records of a run."""

import pytest
from hypothesis import given, strategies as st
from kept_runs import write_records
from served_jobs import record

from distrain.jobs.run_paths import RunPaths
from distrain.service.page.jobs_page import changed_fields, records_of as page_records

VALUES = st.recursive(
    st.none() | st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4))
def test_a_spec_does_not_differ_from_itself(spec):
    assert changed_fields([spec, spec, spec]) == []
    more = {**spec, "of its own": 1}
    (row,) = changed_fields([spec, more, spec])
    assert (row.field, row.values) == ("of its own", ("-", "1", "-"))


@pytest.mark.parametrize(
    "damage",
    [
        {"seconds": {"forward": "x"}},
        {"seconds": [1]},
        {"seconds": {"forward": 10**400, "other": 0.5}},
        {"stall_pct": ["x"]},
        {"stall_summary": {"mean": 1}},
        {"stall_summary": {"worst": [[0]]}},
    ],
)
def test_records_of_other_shapes_are_not_shown(tmp_path, damage):
    line = record(1, 1).to_json() | {"stall_pct": []} | damage
    write_records(RunPaths(tmp_path), [line])
    assert page_records(str(tmp_path)) == []


def test_the_last_records_of_a_long_file_are_shown(tmp_path):
    records = [record(1, step) for step in range(1, 2000)]
    write_records(RunPaths(tmp_path), [one.to_json() for one in records])
    with RunPaths(tmp_path).attempt_records(1).open("ab") as file:
        file.write(b"half a li")
    shown = page_records(str(tmp_path))
    assert 0 < len(shown) < len(records)
    assert shown == records[-len(shown) :]
