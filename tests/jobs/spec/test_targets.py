"""The schema as a job trains on it: targets and weights that the spec names."""

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.targets import with_targets
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        ColumnSchema("user", "int32", (Tags.CATEGORICAL, Tags.USER), cardinality=9),
        ColumnSchema("genre", "int32", (Tags.CATEGORICAL,), cardinality=4),
        ColumnSchema("age", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("seconds", "float32", (Tags.REGRESSION,)),
        ColumnSchema("importance", "float32", (Tags.WEIGHT,)),
    )
)


def spec_with(tasks=None, **data):
    model = {"kind": "mlp", **({} if tasks is None else {"tasks": tasks})}
    return parse_spec({"data": {"train": "t", **data}, "model": model})


def test_nothing_named_leaves_the_schema_as_it_is():
    assert with_targets(SCHEMA, spec_with()) is SCHEMA


def test_tasks_are_the_targets_in_their_order_and_no_features():
    tasks = {"watch": {"target": "seconds"}, "genre": {}, "clicked": {}, "age": {"kind": "binary"}}
    found = with_targets(SCHEMA, spec_with(tasks))
    targets = found.select_by_tag(Tags.TARGET)
    assert targets.names == ("seconds", "genre", "clicked", "age")
    kinds = [column.target_kind for column in targets]
    assert kinds == ["regression", "multiclass", "binary", "binary"]
    assert found["genre"].cardinality == 4
    assert found.remove_by_tag(Tags.TARGET, Tags.WEIGHT).names == ("user",)
    assert with_targets(found, spec_with(tasks)) == found


def test_other_targets_are_left_out_and_unknown_columns_asked_for():
    found = with_targets(SCHEMA, spec_with({"order": {"target": "ordered"}}))
    assert found.select_by_tag(Tags.TARGET).names == ("ordered",)
    assert "clicked" not in found


def test_weights_by_name():
    tasks = {"clicked": {}, "watch": {"target": "seconds", "weight": "age"}}
    found = with_targets(SCHEMA, spec_with(tasks, weight="shown"))
    assert found.select_by_tag(Tags.WEIGHT).names == ("shown",)
    assert found.select_by_tag(Tags.TASK_WEIGHT).names == ("age",)
    assert "importance" not in found
    own = with_targets(SCHEMA, spec_with(tasks))
    assert own.select_by_tag(Tags.WEIGHT).names == ("importance",)


def test_the_column_of_known_labels_goes_with_its_target():
    bought = ColumnSchema("bought", "float32", (Tags.TARGET,), properties={"known": "has_bought"})
    known = ColumnSchema("has_bought", "float32", (Tags.TASK_WEIGHT,))
    schema = SCHEMA.with_columns(bought, known)
    both = with_targets(schema, spec_with({"clicked": {}, "buy": {"target": "bought"}}))
    assert both.select_by_tag(Tags.TASK_WEIGHT).names == ("has_bought",)
    assert "has_bought" not in with_targets(schema, spec_with({"clicked": {}}))


def test_what_does_not_go_together_is_refused(wording):
    for tasks, data in (
        ({"a": {"target": "age"}, "b": {"target": "age", "kind": "binary"}}, {}),
        ({"clicked": {}}, {"weight": "clicked"}),
        (None, {"weight": "clicked"}),
        ({"clicked": {"loss": "huber"}}, {}),
        ({"seconds": {"delta": 2.0}}, {}),
        ({"seconds": {"classes": 3}}, {}),
    ):
        with pytest.raises(SpecError) as caught:
            with_targets(SCHEMA, spec_with(tasks, **data))
        wording(caught.value)
    for task in ({"kind": "ranking"}, {"loss_weight": -1}, {"targets": "x"}):
        with pytest.raises(SpecError, match=f"model.tasks.a.{next(iter(task))}"):
            spec_with({"a": task})
    with pytest.raises(SpecError, match=r"model\.tasks"):
        spec_with({"a.b": {}})


def test_sharing_has_a_short_form():
    document = {"data": {"train": "t"}, "model": {"kind": "mlp", "sharing": "ple"}}
    short, long = (
        parse_spec(document),
        parse_spec({**document, "model": {"kind": "mlp", "sharing": {"kind": "ple"}}}),
    )
    assert short == long
    assert short.model.sharing.layers == 2
    with pytest.raises(SpecError):
        parse_spec({**document, "model": {"kind": "mlp", "sharing": "plee"}})
