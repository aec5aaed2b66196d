"""What `train --resume` finds in a run directory, and whether it can go on from there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import InputError
from distrain.spec import JobSpec

if TYPE_CHECKING:
    from distrain.checkpoint import Entry
    from distrain.train.inputs import Inputs


_LONGER = ("train.epochs=", "train.max_steps=", "train.early_stopping")
"""What takes a run that has succeeded further."""


@dataclass(frozen=True)
class Resumption:
    """Where a run was left.

    Attributes:
        first_attempt: The number of its next attempt: events and files of older ones stay apart.
        newest: Its newest whole checkpoint; `None` if it has none and begins anew.
        damaged: What could not be used of its checkpoints, as people should read it.
    """

    first_attempt: int
    newest: "Entry | None"
    damaged: tuple[str, ...] = ()

    @property
    def step(self) -> int | None:
        """Steps that its checkpoint holds."""
        return None if self.newest is None else self.newest.step

    def check(self, spec: JobSpec, inputs: "Inputs") -> None:
        """Refuse to go on with another spec or other data than the checkpoint's.

        Raises:
            SpecError: Fields differ on which the training depends.
            DataError: The data is another.
        """
        from distrain.train.resume_check import check_resumable

        if self.newest is not None:
            check_resumable(self.newest.values, spec, inputs, self.newest.name)


def how_to_resume(run_dir: Path, scheduler: str | None, step: int | None) -> str:
    """The command that goes on with a run, as a hint.

    Args:
        run_dir: The run.
        scheduler: Where it ran; `None` for a local cluster.
        step: Steps that its last checkpoint holds, if that is known.
    """
    at = f" --scheduler {scheduler}" if scheduler else ""
    since = "its last checkpoint" if step is None else f"the checkpoint of step {step}"
    return f"Go on from {since}: distrain train --resume {run_dir}{at}"


def find_run(root: Path, overrides: Sequence[str]) -> tuple[str, JobSpec, Resumption]:
    """The job whose run a directory holds, as it is to go on.

    Args:
        root: The run directory.
        overrides: Fields of the spec to be set, as `SECTION.FIELD=VALUE`.

    Returns:
        Its id, its spec with the overrides, and where it was left.

    Raises:
        InputError: There is no run, or one that has succeeded.
        DataError: Its checkpoints cannot be looked at.
    """
    from distrain.report import read_run, read_summary
    from distrain.run_paths import RunPaths

    paths = RunPaths(root)
    run, spec = read_run(root, overrides)
    summary = read_summary(paths) or {}
    longer = any(word.startswith(_LONGER) for word in overrides)
    if summary.get("state") == "succeeded" and not longer:
        raise InputError(
            "the run has succeeded: there is nothing to go on with",
            where={"path": str(root)},
            hint=_how_to_train_longer(spec, summary.get("stopped_early") is not None, root),
        )

    from distrain.checkpoint import CheckpointPlace
    from distrain.train.saving import checkpoint_url

    place = CheckpointPlace(checkpoint_url(spec, paths, run.job_id))
    entries = place.list()
    attempts = [*paths.attempts(), *(entry.attempt for entry in entries)]
    newest = entries[0] if entries else None
    resumption = Resumption(1 + max(attempts, default=0), newest, tuple(place.damaged))
    return run.job_id, spec, resumption


def _how_to_train_longer(spec: JobSpec, stopped_early: bool, root: Path) -> str:
    """What to do with a run that has succeeded."""
    if stopped_early:
        return (
            "It stopped early. To go on, pass --set train.early_stopping.patience=N, or "
            "--set train.early_stopping=null."
        )
    if spec.train.schedule.decay == "none":
        return "To train longer, pass --set train.epochs=N, or train.max_steps."
    return (
        f"Its learning rate falls until the last step (train.schedule.decay is "
        f"{spec.train.schedule.decay}): in a longer job its steps would have had other rates. "
        f"A new run may begin with its weights: --set train.init_from={root}."
    )
