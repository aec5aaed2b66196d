"""Which job may go on from which checkpoint."""

from dataclasses import replace
from functools import partial

import pytest

from distrain.errors import DataError, SpecError
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.spec.resuming import MAY_DIFFER, MAY_DIFFER_WITHOUT_DECAY, different_fields
from distrain.loader.partition.table import Table
from distrain.schema import criteo_schema
from distrain.train.data.job_tables import Inputs
from distrain.train.loop.checkpoints import check_resumable, progress_values

DOCUMENT = {"data": {"train": "a", "valid": "b"}, "model": {"kind": "mlp"}}
INPUTS = Inputs(criteo_schema(), Table((), "aa" * 32), Table((), "bb" * 32))


def spec_of(*overrides):
    return parse_spec(DOCUMENT, overrides)


def saved(*overrides):
    return progress_values(spec_of(*overrides), INPUTS)


MAY_CHANGE = [
    "name=other",
    "tags={team: ads}",
    "resources.num_ranks=2",
    "deadlines.progress_s=5",
    "restart.max_rank_failures=0",
    "queue.priority=3",
    "checkpoint.every_steps=7",
    "evaluate.every_steps=9",
    "embeddings.placement=row_wise",
    "embeddings.tables={C1: row_wise}",
    "data.train=moved",
    "data.schema=elsewhere",
    "data.reader=arrow",
    "train.log_every_steps=3",
    "train.epochs=5",
    "train.max_steps=5",
]


def test_what_neither_rows_nor_arithmetic_depend_on_may_differ():
    for override in MAY_CHANGE:
        changed, values = spec_of(override), saved()
        assert changed != spec_of()
        assert different_fields(values["spec"], changed, 5) == [], override
        check_resumable(values, changed, INPUTS, "step-5")
        values["spec"]["train"]["seed"] = 4  # it is looked at all the same
        with pytest.raises(SpecError, match=r"train\.seed"):
            check_resumable(values, changed, INPUTS, "step-5")


def test_tasks_in_another_order_are_named_before_the_files_are(wording):
    one, other = ("model.tasks={a: {}, b: {}}", "model.tasks={b: {}, a: {}}")
    values, others = saved(one), replace(INPUTS, train=Table((), "dd" * 32))
    wording.refused(SpecError, lambda: check_resumable(values, spec_of(other), others, "step-5"))
    assert different_fields(values["spec"], spec_of(one)) == []


def test_every_difference_is_named_with_both_values(wording):
    changed = spec_of(
        "train.seed=4",
        "train.optimizer.kind=adam",
        "train.global_batch_size=100",
        "data.shuffle=full",
        "model={kind: dlrm}",
        "embeddings.storage=bf16",
        "train.lanes=12",
        "name=other",
    )
    wording.refused(SpecError, lambda: check_resumable(saved(), changed, INPUTS, "step-5"))


@pytest.mark.parametrize("field", ["train.epochs=3", "train.max_steps=9"])
def test_a_decaying_learning_rate_fixes_the_length(field):
    decay = "train.schedule.decay=linear"
    assert different_fields(spec_of().model_dump(mode="json"), spec_of(field)) == []
    (problem,) = different_fields(spec_of(decay).model_dump(mode="json"), spec_of(decay, field))
    assert problem.startswith(field.partition("=")[0])


@pytest.mark.parametrize(("step", "allowed"), [(7, True), (8, False)])
def test_the_length_is_free_until_the_decay_begins(step, allowed, wording):
    schedule = "train.schedule={warmup_steps: 2, decay: cosine, decay_start_step: 6}"
    values = saved(schedule) | {"step": step}
    if allowed:
        check_resumable(values, spec_of(schedule, "train.epochs=3"), INPUTS, "a checkpoint")
        return
    wording.refused(
        SpecError,
        lambda: check_resumable(
            values, spec_of(schedule, "train.epochs=3"), INPUTS, "a checkpoint"
        ),
    )


def test_a_decay_of_embeddings_alone_is_named(wording):
    course = "train.table_schedule={decay: linear}"
    wording.refused(
        SpecError,
        lambda: check_resumable(
            saved(course), spec_of(course, "train.epochs=3"), INPUTS, "a checkpoint"
        ),
    )


def test_every_field_of_the_table_is_one():
    def fields(section, prefix=""):
        for name, field in section.model_fields.items():
            name = prefix + (field.alias or name)
            yield name
            if hasattr(field.annotation, "model_fields"):
                yield from fields(field.annotation, f"{name}.")

    known = set(fields(JobSpec))
    assert set(MAY_DIFFER) | set(MAY_DIFFER_WITHOUT_DECAY) <= known


def test_fields_that_are_newer_than_the_checkpoint_have_their_defaults(wording):
    values = saved()
    del values["spec"]["train"]["audit"]
    del values["spec"]["train"]["lanes"]
    check_resumable(values, spec_of(), INPUTS, "step-5")
    wording.refused(
        SpecError, lambda: check_resumable(values, spec_of("train.lanes=48"), INPUTS, "step-5")
    )


def test_other_data_is_refused_and_a_missing_validation_is_not(wording):
    check_resumable(saved(), spec_of(), replace(INPUTS, valid=None), "step-5")
    for split in ("train", "valid"):
        other = replace(INPUTS, **{split: Table((), "cc" * 32)})
        caught = wording.refused(
            DataError, partial(check_resumable, saved(), spec_of(), other, "step-5")
        )
        assert caught.where["now"] == "cc" * 32


def test_a_state_of_something_else_is_refused(wording):
    wording.refused(SpecError, lambda: check_resumable({"step": 3}, spec_of(), INPUTS, "step-3"))
