import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from distrain.jobs import events
from distrain.jobs.events import EVENT_TYPES, PHASES, from_json, to_json

COUNTS = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e9)
FIELDS = {
    Sequence[int]: st.lists(st.integers(0, 100), max_size=15),
    int: COUNTS,
    int | None: st.none() | COUNTS,
    str: st.text(),
    str | None: st.none() | st.text(),
    float: SECONDS,
    float | None: st.none() | SECONDS,
    bool: st.booleans(),
    Sequence[str]: st.lists(st.text(), max_size=5),
    Mapping[str, float]: st.dictionaries(st.sampled_from(PHASES), SECONDS),
    Mapping[str, float | None]: st.dictionaries(st.text(), st.none() | SECONDS),
    Mapping[str, Sequence[float]]: st.dictionaries(st.text(), st.lists(SECONDS, max_size=2)),
    Mapping[str, int]: st.dictionaries(st.text(), COUNTS),
    Mapping[str, Mapping[str, Any]]: st.dictionaries(st.text(), st.dictionaries(st.text(), COUNTS)),
    Mapping[str, Any]: st.dictionaries(st.text(), COUNTS | st.text() | SECONDS),
}


def example_of(kind):
    return st.builds(kind, **{f.name: FIELDS[f.type] for f in dataclasses.fields(kind)})


EVENTS = st.one_of(*(example_of(kind) for kind in EVENT_TYPES.values()))


@given(EVENTS)
def test_every_event_survives_json(event):
    line = json.dumps(to_json(event))
    assert "\n" not in line
    assert from_json(json.loads(line)) == event


def test_a_job_of_one_target_reports_nothing_of_others():
    one = events.EvaluationDone(0, 0, 40, 1.0, {})
    assert "target_aucs" not in to_json(one)
    aucs = {"buy": [0.75, 0.0]}
    assert to_json(dataclasses.replace(one, target_aucs=aucs))["target_aucs"] == aucs


def test_every_event_has_its_own_kind_and_is_frozen():
    declared = {
        value
        for value in vars(events).values()
        if dataclasses.is_dataclass(value)
        and isinstance(value, type)
        and value is not events._OfRank
    }
    assert set(EVENT_TYPES.values()) == declared
    for kind, cls in EVENT_TYPES.items():
        assert cls.kind == kind
        assert cls.__dataclass_params__.frozen
        assert next(iter(dataclasses.fields(cls))).name == "rank"


def test_an_unknown_kind_is_refused():
    for kind in ("rank_exploded", "", None, 3, ["rank_started"], {}):
        with pytest.raises(ValueError, match="unknown event kind"):
            from_json({"kind": kind, "rank": 0})
    with pytest.raises(ValueError, match="unknown event kind"):
        from_json({})


@pytest.mark.parametrize("fields", [{}, {"rank": 0}, {"rank": 0, "path": "x", "size": 3}])
def test_missing_and_surplus_fields_are_told(fields):
    with pytest.raises(ValueError, match="not a model_saved event"):
        from_json({"kind": "model_saved", **fields})


def test_from_json_leaves_the_document_alone():
    document = {"kind": "model_saved", "rank": 0, "path": "x"}
    from_json(document)
    assert document["kind"] == "model_saved"
