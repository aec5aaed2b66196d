"""Trainings of one rank in the process of the test."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from distrain.jobs.assignment import World
from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import JobSpec
from distrain.launch.inline import run_inline
from distrain.train.data.inputs import check_inputs
from distrain.train.loop.trainer import Trainer


def new_trainer(
    spec: JobSpec, root: Path, attempt: int = 0, job_id: str = "the-job", **given: Any
) -> tuple[Trainer, list[Any]]:
    """A trainer on the CPU, and where its events come to."""
    events: list[Any] = []
    inputs = given.pop("inputs", None) or check_inputs(spec)
    where = (World(), torch.device("cpu"), RunPaths(root))
    return Trainer(spec, inputs, *where, events.append, job_id, attempt, **given), events


def trained(
    spec: JobSpec, root: Path, attempt: int = 0, job_id: str = "the-job", **given: Any
) -> tuple[Trainer, list[Any]]:
    """A trainer that has come to its end, and its events."""
    trainer, events = new_trainer(spec, root, attempt, job_id, **given)
    assert trainer.run()
    return trainer, events


def trained_view(spec: JobSpec, root: Path, attempt: int) -> JobView:
    """The last view of a job that succeeded, with the progress of all its views."""
    views: list[JobView] = []
    view = run_inline(spec, root, "the-job", views.append, attempt)
    assert view.reason is None, view.message
    return replace(view, progress=tuple(progress for each in views for progress in each.progress))


def of_kind(events: list[Any], kind: type) -> list[Any]:
    """The events of a kind."""
    return [event for event in events if isinstance(event, kind)]
