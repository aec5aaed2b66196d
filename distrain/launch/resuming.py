"""What a run directory holds to go on with, and whether a job can go on from there.

A command that a launcher started once for each rank is started again when one has died, and goes on
so, too.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import flat
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.jobs.spec.resuming import decaying_course
from distrain.launch.external_ranks import Gang, Launch, follow
from distrain.runs.attempts import read_attempts
from distrain.runs.finishing import as_it_stands
from distrain.runs.run_file import read_run_and_spec, read_summary, untrained
from distrain.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry
    from distrain.train.data.job_tables import Inputs

_LONGER = ("train.epochs=", "train.max_steps=", "train.early_stopping")
"""Overrides that let a run go on that has succeeded."""


@dataclass(frozen=True)
class Resumption:
    """Where a run was left."""

    first_attempt: int  # the number of its next attempt: events and files of older ones stay apart
    # its newest whole checkpoint; `None` if it has none and begins anew
    newest: "CheckpointEntry | None"
    damaged: tuple[str, ...] = ()  # which of its checkpoints cannot be used and why, in words

    @property
    def step(self) -> int | None:
        return None if self.newest is None else self.newest.step

    def check(self, spec: JobSpec, inputs: "Inputs") -> None:
        """Refuse to go on with another spec or other data than the checkpoint's."""
        from distrain.train.saving.checkpoints import check_resumable

        if self.newest is not None:
            check_resumable(self.newest.values, spec, inputs, self.newest.name)


def how_to_resume(run_dir: Path, scheduler: str | None, step: int | None) -> str:
    """A hint with the command that goes on with a run, from a checkpoint of `step` if known."""
    at = f" --scheduler {scheduler}" if scheduler else ""
    since = "its last checkpoint" if step is None else f"the checkpoint of step {step}"
    return f"Go on from {since}: distrain train --resume {run_dir}{at}"


def find_run(
    root: Path, overrides: Sequence[str], *, without_checkpoint: bool = False
) -> tuple[str, JobSpec, Resumption]:
    """The job whose run a directory holds: its id, the spec to go on with, where it was left.

    The spec gets `overrides`, as `SECTION.FIELD=VALUE`. With `without_checkpoint` the run may begin
    anew if its checkpoints are not found. An `InputError` says that there is no run, that it has
    succeeded, or that its checkpoints are not where they should be.
    """
    paths = RunPaths(root)
    run, spec = read_run_and_spec(root, overrides)
    summary = read_summary(paths) or {}
    longer = any(word.startswith(_LONGER) for word in overrides)
    if summary.get("state") == "succeeded" and (spec.train.refit or not longer):
        raise InputError(
            "the run has succeeded: there is nothing to go on with",
            where={"path": str(root)},
            hint=_how_to_train_longer(spec, summary.get("stopped_early") is not None, root),
        )

    from distrain.train.saving.checkpoints import checkpoint_dir

    with RunFolder(root) as folder:
        record = as_it_stands(read_attempts(folder), summary)
    saved = dict(record.get("checkpoints") or {})
    spec = with_absolute_paths(spec)
    place = checkpoint_dir(spec, paths, run.job_id)
    entries = place.list()
    if not entries and not without_checkpoint and saved.get("count"):
        raise _none_found(root, place, saved)
    attempts = [*paths.attempts(), *(entry.attempt for entry in entries)]
    last = max(1, record.get("attempts") or 0, *attempts)  # it had one, whatever is left of it
    newest = entries[0] if entries else None
    resumption = Resumption(1 + last, newest, tuple(place.damaged))
    return run.job_id, spec, resumption


def _how_to_train_longer(spec: JobSpec, stopped_early: bool, root: Path) -> str:
    if spec.train.refit:
        return (
            "Its refit took as many steps as validations had found. A new run may begin with its "
            f"weights: --set train.init_from={root}."
        )
    if stopped_early:
        return (
            "It stopped early. To go on, pass --set train.early_stopping.patience=N, or "
            "--set train.early_stopping=null."
        )
    course = decaying_course(spec)
    if course is None:
        return "To train longer, pass --set train.epochs=N, or train.max_steps."
    field, decay = course
    return (
        f"Its learning rate falls until the last step ({field} is "
        f"{decay}): in a longer job its steps would have had other rates. "
        f"A new run may begin with its weights: --set train.init_from={root}."
    )


def _none_found(root: Path, place: "CheckpointDir", saved: Mapping[str, Any]) -> InputError:
    where: dict[str, object] = {"run": root, "looked in": place.url}
    if saved.get("path"):
        where["its last checkpoint was"] = saved["path"]
    if place.damaged:
        where["found there"] = "; ".join(place.damaged)
    return InputError(
        f"the run wrote {saved['count']} checkpoints, and no complete one was found",
        where=where,
        hint="Set checkpoint.dir to their place, or restart from step 0: --without-checkpoint.",
    )


def lead_or_follow(spec: JobSpec, run_dir: Path | None) -> Gang:
    """The ranks of a job, for rank 0; the process of any other trains its rank here, and ends."""
    launch = Launch.of_environment()
    if launch.world.rank > 0:
        sys.exit(follow(launch))
    if run_dir is None:
        raise InputError(
            "resources.backend is env, and no run directory is named",
            hint="Name one with --run-dir: a launcher that starts the ranks again goes on there.",
        )
    if spec.resources.device != "cpu":
        launch.take_own_gpu()
    return Gang(launch)


def go_on(
    root: Path, gang: Gang, job_with: Callable[[str], tuple[str, JobSpec, Resumption | None]]
) -> tuple[str, JobSpec, Resumption | None]:
    """The job of all ranks, which goes on where an earlier start of the same command was left.

    Args:
        job_with: The job that the command names, with fields of its spec set.
    """
    word = f"resources.num_ranks={gang.launch.world.num_ranks}"
    job_id, spec, resumed = job_with(word)
    paths = RunPaths(root)
    if resumed is not None or not paths.run.exists() or untrained(paths) is not None:
        return job_id, spec, resumed
    job_id, begun, resumed = find_run(root, [word], without_checkpoint=True)
    given, there = (flat(one.model_dump(mode="json")) for one in (with_absolute_paths(spec), begun))
    # What a run's spec holds in place of `auto` and null follows from the data.
    other = [key for key in given if given[key] not in (there.get(key), "auto", None)]
    if other:
        raise InputError(
            "the run directory holds the run of another job",
            where={"path": str(root), "differs": ", ".join(other)},
            hint="Choose another --run-dir, or go on with that one: --resume.",
        )
    return job_id, begun, resumed
