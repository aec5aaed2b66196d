"""What differs between specs, which value is best, and a spec without its defaults."""

import pytest
from hypothesis import given, strategies as st

from distrain.jobs.documents import Job
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.load import dump_yaml, parse_yaml
from distrain.service.page.comparison import metric_rows, setting_rows
from distrain.service.page.job_page import short_text

VALUES = st.recursive(
    st.none() | st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4))
def test_a_spec_does_not_differ_from_itself(spec):
    assert setting_rows([spec, spec, spec]) == []
    more = {**spec, "of its own": 1}
    (row,) = setting_rows([spec, more, spec])
    assert (row.field, row.values) == ("of its own", ("-", "1", "-"))


def test_the_best_job_of_each_metric_is_marked():
    jobs = [
        Job(valid_auc=0.7, valid_loss=0.5, valid_targets={"price": {"rmse": 3.0}}),
        Job(valid_auc=0.8, valid_loss=0.6, valid_targets={"price": {"rmse": 2.0}}),
        Job(valid_auc=0.8),
    ]
    best = {row.field: set(row.best) for row in metric_rows(jobs, [1.0, 2.0, None])}
    assert best["Validation AUC"] == {1, 2}
    assert best["Validation loss"] == {0}
    assert best["Validation RMSE of price"] == {1}
    assert best["Duration"] == set()
    assert all(not row.best for row in metric_rows([jobs[0], jobs[0]], [1.0, 1.0]))


@pytest.mark.parametrize("kind", ["dlrm", "dcn_v2", "mlp", "deepfm"])
@pytest.mark.parametrize("optimizer", [{}, {"kind": "adam"}, {"kind": "sgd", "lr": 0.5}])
def test_a_spec_without_its_defaults_is_the_same_job(kind, optimizer):
    document = {"data": {"train": "day_0"}, "model": {"kind": kind}, "train": {"epochs": 3}}
    if optimizer:
        document["train"]["optimizer"] = optimizer
    spec = parse_spec(document).model_dump(mode="json")
    short = short_text(spec)
    assert parse_spec(parse_yaml(short)).model_dump(mode="json") == spec
    assert short.count("\n") < dump_yaml(spec).count("\n") / 3
