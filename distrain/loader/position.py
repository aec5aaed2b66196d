"""Where a stream of rows stands, as plain values that another loader of it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrain.errors import SpecError
from distrain.loader.dataset import Dataset
from distrain.loader.options import LoaderOptions, whole_number

Position = tuple[int, int]
"""An epoch, and a step of it."""


def state_of(
    dataset: Dataset, options: LoaderOptions, position: Position, num_steps: int
) -> dict[str, Any]:
    """Return a position and all that the order of rows depends on, the same on every rank."""
    epoch, step = _normal(position, num_steps)
    slices, windows = dataset.slices, dataset.windows
    return {
        "epoch": epoch,
        "step": step,
        "fingerprint": dataset.table.fingerprint,
        "part_rows": dataset.part_rows,
        **options.order_of_rows(),
        # Only then, since states of other tables must go on to fit.
        **({"slices": len(slices)} if slices.any_large else {}),
        **({"windows": [len(one) for one in windows]} if len(windows) > 1 else {}),
    }


def position_in(state: Mapping[str, Any], mine: Mapping[str, Any], num_steps: int) -> Position:
    """Return the position of a state of the same stream as `mine`.

    Raises:
        SpecError: The state is of other data, or of a loader with another order of rows.
    """
    missing = [name for name in mine if name not in state and name != "windows"]
    if missing:
        raise SpecError(
            f"this is no state of a loader: it lacks {', '.join(missing)}",
            hint="Give what `state_dict()` of a Loader returned.",
        )
    # A state without windows goes on in a table without them only.
    different = [
        f"{name} is {mine.get(name)!r} here and {state.get(name)!r} in the state"
        for name in dict.fromkeys([*mine, "windows"])
        if name not in ("epoch", "step") and mine.get(name) != state.get(name)
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
    """Return the end of an epoch is the beginning of the next."""
    epoch, step = position
    return (epoch + 1, 0) if step == num_steps else position
