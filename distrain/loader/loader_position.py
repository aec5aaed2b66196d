"""Saves a loader's position as plain values, and reads it in another loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrain.errors import SpecError
from distrain.loader.dataset import Dataset
from distrain.loader.options import LoaderOptions, whole_number

Position = tuple[int, int]
"""The number of an epoch, and of a step in it."""


def state_of(
    dataset: Dataset, options: LoaderOptions, position: Position, num_steps: int
) -> dict[str, Any]:
    """Return a position and everything that determines the order of rows; equal on all ranks.

    All values have a JSON form.
    """
    epoch, step = _normal(position, num_steps)
    slices, windows = dataset.slices, dataset.windows
    return {
        "epoch": epoch,
        "step": step,
        "fingerprint": dataset.table.fingerprint,
        "part_rows": dataset.part_rows,
        **options.order_of_rows(),
        # Only for tables with large row groups or windows: states that earlier versions saved for
        # other tables remain valid.
        **({"slices": len(slices)} if slices.any_large else {}),
        **({"windows": [len(one) for one in windows]} if len(windows) > 1 else {}),
    }


def position_in(state: Mapping[str, Any], own_state: Mapping[str, Any], num_steps: int) -> Position:
    """Return the position in `state`, which must have the same order of rows as `own_state`.

    Raises:
        SpecError: The state is of other data, or of a loader with another order of rows, or is
            incomplete.
    """
    missing = [name for name in own_state if name not in state and name != "windows"]
    if missing:
        raise SpecError(
            f"this is not the state of a loader: it lacks {', '.join(missing)}",
            hint="Pass the result of a Loader's `state_dict()`.",
        )
    # A state without windows fits only a table without them.
    different = [
        f"{name} is {own_state.get(name)!r} here and {state.get(name)!r} in the state"
        for name in dict.fromkeys([*own_state, "windows"])
        if name not in ("epoch", "step") and own_state.get(name) != state.get(name)
    ]
    if different:
        raise SpecError(
            f"the state belongs to another stream of rows: {'; '.join(different)}",
            hint="Load it with the same data, seed, shuffle, lanes and global batch size; only "
            "the number of ranks may differ.",
        )
    epoch = whole_number("epoch", state.get("epoch"), 0)
    step = whole_number("step", state.get("step"), 0)
    if step > num_steps:
        raise SpecError(f"the state's step {step} is not in 0..{num_steps}")
    return _normal((epoch, step), num_steps)


def _normal(position: Position, num_steps: int) -> Position:
    """Return the position with the end of an epoch replaced by the start of the next one."""
    epoch, step = position
    return (epoch + 1, 0) if step == num_steps else position
