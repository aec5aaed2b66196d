"""Which checkpoints are kept, and the removal of the others."""

from collections.abc import Sequence

from distrain.checkpoint.manifest import MANIFEST_FILE
from distrain.checkpoint.place import CheckpointPlace, Entry, Survey, numbers_of


def expendable(entries: Sequence[Entry], keep: int, best_step: int | None) -> list[Entry]:
    """Those that are neither among the newest nor the best.

    Args:
        entries: The whole checkpoints, the newest first.
        keep: How many of the newest stay, at least 1.
        best_step: The step of one that stays besides; `None`: no other.
    """
    kept = {entry.name for entry in entries[:keep]}
    best = entry_of_step(entries, best_step)
    if best is not None:
        kept.add(best.name)
    return [entry for entry in entries if entry.name not in kept]


def entry_of_step(entries: Sequence[Entry], step: int | None) -> Entry | None:
    """The checkpoint of a step: of several, that of the latest attempt.

    Args:
        entries: The newest first, as `CheckpointPlace.list` has them.
        step: Steps that it holds.
    """
    return next((entry for entry in entries if entry.step == step), None)


def leftovers(found: Survey, current: str) -> list[str]:
    """The folders that hold no checkpoint, and that nobody can be writing any more.

    Args:
        found: What lies in the place.
        current: The checkpoint that was written last, which is whole. The other ranks may have
            begun the next one already; later attempts are left alone, too, and what only another
            version of distrain can read.
    """
    if found.others:  # whose they are that have no manifest yet cannot be told
        return []
    return [name for name in found.broken if _order(name) < _order(current)]


def _order(name: str) -> tuple[int, int]:
    """Checkpoints are written in this order."""
    step, attempt = numbers_of(name) or (0, 0)
    return attempt, step


def prune(place: CheckpointPlace, current: str, keep: int, best_step: int | None) -> None:
    """Remove what need not be kept, after a checkpoint became whole.

    Raises:
        OSError: Something could not be looked at or removed.
    """
    found = place.survey()
    names = [entry.name for entry in expendable(found.whole, keep, best_step)]
    for name in [*names, *leftovers(found, current)]:
        # Without its manifest it is none any more, however far this gets.
        place.folder(name).remove(first=[MANIFEST_FILE])
