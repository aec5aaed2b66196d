"""Which checkpoints are kept, and the removal of the others."""

from collections.abc import Sequence

from distrain.checkpoint.checkpoint_dir import CheckpointDir, CheckpointEntry, Survey, numbers_of
from distrain.checkpoint.manifest import MANIFEST_FILE


def expendable(
    entries: Sequence[CheckpointEntry], keep: int, best_step: int | None
) -> list[CheckpointEntry]:
    """The checkpoints that are neither among the `keep` newest nor that of the best step."""
    kept = [*entries[:keep], entry_of_step(entries, best_step)]
    return [entry for entry in entries if entry not in kept]


def entry_of_step(entries: Sequence[CheckpointEntry], step: int | None) -> CheckpointEntry | None:
    """The checkpoint of a step: of several, that of the latest attempt."""
    return next((entry for entry in entries if entry.step == step), None)


def leftovers(survey: Survey, current: str) -> list[str]:
    """The folders without a checkpoint that nobody can be writing any more.

    After `current` is whole, other ranks may be writing the next one. Later attempts are left
    alone, too, and what only another version of distrain can read.
    """
    if survey.others:  # a folder without a manifest may be another run's
        return []
    return [name for name in survey.broken if _order(name) < _order(current)]


def _order(name: str) -> tuple[int, int]:
    step, attempt = numbers_of(name) or (0, 0)
    return attempt, step


def prune(directory: CheckpointDir, current: str, keep: int, best_step: int | None) -> None:
    """Remove what need not be kept, after a checkpoint became whole; may raise `OSError`."""
    survey = directory.survey()
    names = [entry.name for entry in expendable(survey.whole, keep, best_step)]
    for name in [*names, *leftovers(survey, current)]:
        # Without its manifest it is none any more, however far this gets.
        directory.folder(name).remove(first=[MANIFEST_FILE])
