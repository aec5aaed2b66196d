"""Finds the newest checkpoint of a run, and checks whether a job can resume from it.

A command that a launcher restarts after a rank died also resumes this way.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import InputError
from distrain.formatting import command_line, set_option
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import flat
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.jobs.spec.resuming import decaying_course
from distrain.launch.external_ranks import Gang, Launch, follow
from distrain.runs.attempts import read_attempts
from distrain.runs.finish_run import current_summary
from distrain.runs.run_file import (
    is_finished,
    is_success,
    read_run_and_spec,
    read_summary,
    why_never_trained,
)
from distrain.runs.stored.folder import open_own_run

if TYPE_CHECKING:
    from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry
    from distrain.train.data.job_tables import Inputs

_LONGER = ("train.epochs=", "train.max_steps=", "train.early_stopping")
"""Overrides with which a successful run can be trained further."""


@dataclass(frozen=True)
class Resumption:
    """The point from which a run is resumed."""

    first_attempt: int  # the number of the next attempt, larger than all earlier ones
    # the newest complete checkpoint; `None` to start from step 0
    newest: "CheckpointEntry | None"
    damaged: tuple[str, ...] = ()  # messages about unusable checkpoints

    @property
    def step(self) -> int | None:
        """The step of the checkpoint; `None` to start from step 0."""
        return None if self.newest is None else self.newest.step

    def check(self, spec: JobSpec, inputs: "Inputs") -> None:
        """Raise an error if the spec or the data do not match the checkpoint, if there is one.

        The error is a `SpecError` for the spec, and a `DataError` for the data.
        """
        from distrain.train.loop.checkpoints import check_resumable

        if self.newest is not None:
            check_resumable(self.newest.values, spec, inputs, self.newest.name)


def how_to_resume(run_dir: Path, scheduler: str | None, step: int | None) -> str:
    """Return a hint with the command that resumes a run, and the checkpoint's `step` if known."""
    at = ["--scheduler", scheduler] if scheduler else []
    since = "its last checkpoint" if step is None else f"the checkpoint of step {step}"
    return f"Resume from {since}: {command_line('train', '--resume', run_dir, *at)}"


def find_run(
    root: Path, overrides: Sequence[str], *, without_checkpoint: bool = False
) -> tuple[str, JobSpec, Resumption]:
    """Return the job id, the spec and the resumption of the run in a directory.

    `overrides`, as `SECTION.FIELD=VALUE`, are applied to the spec. With `without_checkpoint` the
    run may start from step 0 if its checkpoints are missing. Raises `InputError` if there is no
    run, or if its checkpoints are missing. Also raises it for a run that has succeeded, unless an
    override trains it longer and the run has no refit.
    """
    paths = RunPaths(root)
    run, spec = read_run_and_spec(root, overrides)
    summary = read_summary(paths) or {}
    longer = any(word.startswith(_LONGER) for word in overrides)
    # A job that was made longer, and killed, has the summary of its earlier end.
    has_ended = is_success(summary) and is_finished(paths)
    if has_ended and (spec.train.refit or not longer):
        raise InputError(
            "the run has succeeded: there is nothing to resume",
            where={"path": str(root)},
            hint=_how_to_train_longer(spec, summary.get("stopped_early") is not None, root),
        )

    from distrain.train.loop.checkpoints import checkpoint_dir

    with open_own_run(paths) as folder:
        record = current_summary(read_attempts(folder), summary)
    saved = dict(record.get("checkpoints") or {})
    spec = with_absolute_paths(spec)
    place = checkpoint_dir(spec, paths, run.job_id)
    entries = place.list()
    if not entries and not without_checkpoint and saved.get("count"):
        raise _none_found(root, place, saved)
    attempts = [*paths.attempts(), *(entry.attempt for entry in entries)]
    last = max(1, record.get("attempts") or 0, *attempts)  # a run has had at least one attempt
    newest = entries[0] if entries else None
    resumption = Resumption(1 + last, newest, tuple(place.damaged))
    return run.job_id, spec, resumption


def _how_to_train_longer(spec: JobSpec, stopped_early: bool, root: Path) -> str:
    if spec.train.refit:
        return (
            "The number of steps of its refit was chosen by validations. A new run can start "
            f"from its weights: {set_option('train.init_from', root)}."
        )
    if stopped_early:
        return (
            "It stopped early. To continue, pass --set train.early_stopping.patience=N, or "
            "--set train.early_stopping=null."
        )
    course = decaying_course(spec)
    if course is None:
        return "To train longer, pass --set train.epochs=N, or train.max_steps."
    field, decay = course
    return (
        f"Its learning rate decays until the last step ({field} is {decay}), so a longer job "
        "would have had other learning rates in the same steps. A new run can start from its "
        f"weights: {set_option('train.init_from', root)}."
    )


def _none_found(root: Path, place: "CheckpointDir", saved: Mapping[str, Any]) -> InputError:
    where: dict[str, object] = {"run": root, "looked in": place.url}
    if saved.get("path"):
        where["its last checkpoint was"] = saved["path"]
    if place.damaged:
        where["found there"] = "; ".join(place.damaged)
    return InputError(
        f"no complete checkpoint was found, although the run wrote {saved['count']}",
        where=where,
        hint="Set checkpoint.dir to their location, or restart from step 0: --without-checkpoint.",
    )


def lead_or_follow(spec: JobSpec, run_dir: Path | None) -> Gang:
    """On rank 0, return the `Gang` of all ranks; on any other rank, train it and exit the process.

    Raises `InputError` if the launcher's variables are unusable, or rank 0 has no run folder.
    """
    launch = Launch.of_environment()
    if launch.world.rank > 0:
        sys.exit(follow(launch))
    if run_dir is None:
        raise InputError(
            "resources.backend is env, but no run folder is given",
            hint="Set one with --run-dir: restarted ranks resume there.",
        )
    if spec.resources.device != "cpu":
        launch.take_own_gpu()
    return Gang(launch)


def resume_or_begin(
    root: Path, gang: Gang, make_job: Callable[[str], tuple[str, JobSpec, Resumption | None]]
) -> tuple[str, JobSpec, Resumption | None]:
    """Return the job's id, its spec, and its resumption (`None` for a new run).

    A launcher may restart a command whose run has begun. Then the run is resumed. `gang` is all
    ranks of the launcher.

    Args:
        root: The run folder.
        make_job: Called with an override, `SECTION.FIELD=VALUE`; returns the job that the command
            describes, with the override applied to its spec.

    Raises:
        InputError: The run folder holds the run of another job, or one that has succeeded.
    """
    word = f"resources.num_ranks={gang.launch.world.num_ranks}"
    job_id, spec, resumed = make_job(word)
    paths = RunPaths(root)
    if resumed is not None or not paths.run.exists() or why_never_trained(paths) is not None:
        return job_id, spec, resumed
    job_id, begun, resumed = find_run(root, [word], without_checkpoint=True)
    given, begun_spec = (
        flat(one.model_dump(mode="json")) for one in (with_absolute_paths(spec), begun)
    )
    # Where the command has `auto` or null, the run's spec has values derived from the data.
    other = [key for key in given if given[key] not in (begun_spec.get(key), "auto", None)]
    if other:
        differs = ", ".join(f"{key}: {begun_spec.get(key)}, now {given[key]}" for key in other)
        raise InputError(
            "the run in this folder was begun with other settings",
            where={"path": str(root), "differs": differs},
            hint="Set these values as they were, resume the run with --resume, or choose another "
            "--run-dir.",
        )
    return job_id, begun, resumed
