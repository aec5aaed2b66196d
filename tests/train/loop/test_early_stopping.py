"""The account of validations, against a plain look at all of them at once."""

import json
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st

from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.training import EarlyStoppingSpec, PlateauSpec
from distrain.train.loop.early_stopping import Validations, should_stop
from distrain.train.step.learning_rate import reduced

METRICS = st.sampled_from(["auc", "log_loss", "normalised_entropy"])
VALUES = st.lists(st.none() | st.sampled_from([0.1, 0.2, 0.21, 0.3, 0.5]), max_size=12)


def document(**sections):
    data = {"train": "a", "valid": "b"}
    return {"data": data, "model": {"kind": "mlp"}, "evaluate": {"every_steps": 5}, **sections}


def gain(metric, value, over):
    return value - over if metric == "auc" else over - value


def looked_at(metric, values, min_delta):
    """Best step and validations since the last improvement, from the whole list."""
    told = [(10 * number, value) for number, value in enumerate(values, 1) if value is not None]
    best = max(told, key=lambda pair: (gain(metric, pair[1], 0.0), -pair[0]), default=(None, None))
    reference, waited = None, 0
    for _, value in told:
        better = reference is None or gain(metric, value, reference) > min_delta
        reference, waited = (value, 0) if better else (reference, waited + 1)
    return best, waited


@given(METRICS, VALUES, st.sampled_from([0.0, 0.05]))
def test_it_is_what_a_look_at_all_of_them_tells(metric, values, min_delta):
    told = Validations(metric)
    for number, value in enumerate(values, 1):
        told = told.after(10 * number, value, min_delta)
    (step, value), waited = looked_at(metric, values, min_delta)
    assert (told.best_step, told.best_value, told.waited) == (step, value, waited)


@given(METRICS, VALUES, st.integers(0, 12), st.integers(1, 4))
def test_an_interruption_changes_no_decision(metric, values, cut, patience):
    section = {"metric": metric, "patience": patience, "min_delta": 0.01}
    spec = parse_spec(document(train={"early_stopping": section}))
    stopping = spec.train.early_stopping
    whole = interrupted = Validations.begin(spec)
    for number, value in enumerate(values, 1):
        whole = whole.after(number, value, 0.01)
        if number == cut:
            interrupted = Validations.resume(spec, json.loads(json.dumps(interrupted.to_json())))
        interrupted = interrupted.after(number, value, 0.01)
        assert interrupted == whole
        assert should_stop(interrupted, stopping) == should_stop(whole, stopping)


@given(
    METRICS,
    st.lists(st.floats(0.1, 1.0), max_size=12),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.01, 0.3]),
    st.sampled_from([0.0, 0.002]),
)
def test_the_rate_falls_as_by_torch(metric, values, patience, threshold, min_lr):
    plateau = PlateauSpec(patience=patience, threshold=threshold, min_lr=min_lr)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    mode = "max" if metric == "auc" else "min"
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, patience=patience, threshold=threshold, min_lr=min_lr, eps=0.0
    )
    told = Validations(metric)
    for step, value in enumerate(values):
        theirs.step(value)
        told = told.after(step, value, 0.0, plateau)
        told = Validations(**json.loads(json.dumps(told.to_json())))
        rate = reduced(0.1, told.reduction, plateau)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
    assert reduced(0.001, told.reduction, plateau) <= 0.001  # in a warm-up it is below `min_lr`


def test_a_worse_negative_value_is_no_improvement():
    plateau, told = PlateauSpec(patience=0, threshold=0.1), Validations("price.r2")
    reductions = []
    for step, value in enumerate([-1.0, -1.05, -0.95, -0.85, -0.8]):
        told = told.after(step, value, 0.0, plateau)
        reductions.append(told.reduction)
    assert reductions == pytest.approx([1.0, 0.1, 0.01, 0.01, 0.001])


def test_another_metric_begins_a_new_record_at_the_rate_that_was_reached():
    spec = parse_spec(document(checkpoint={"keep_best": "log_loss"}))
    saved = Validations("auc", 5, 0.7, 0.7, reduction=0.01).to_json()
    assert Validations.resume(spec, saved) == Validations("log_loss", reduction=0.01)
    assert Validations.resume(spec, None) == Validations("log_loss")
    assert Validations.begin(parse_spec(document())) is None
    assert not should_stop(None, EarlyStoppingSpec())


REFUSED = [
    {"train": {"early_stopping": {"metric": "log_loss"}}, "checkpoint": {"keep_best": "auc"}},
    {"train": {"early_stopping": {}}, "evaluate": {"every_steps": None}},
    {"train": {"early_stopping": {"metric": "accuracy"}}},
    {"train": {"early_stopping": {"patience": 0}}},
    {"train": {"early_stopping": {"patienc": 2}}},
    {"train": {"reduce_on_plateau": {}}, "evaluate": {}},
    {"train": {"reduce_on_plateau": {}}},
]


def test_what_cannot_work_is_refused(wording):
    for sections in REFUSED:
        wording.refused(SpecError, partial(parse_spec, {**document(), **sections}))
