"""What ranks tell once in a run, as facts and as people should read it. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distrain.events import StoppedEarly, WeightsTaken


def facts_of(event: StoppedEarly | WeightsTaken) -> Mapping[str, Any]:
    """An event's fields but for the rank, as JSON values."""
    return {name: value for name, value in asdict(event).items() if name != "rank"}


def stopped_early_text(event: StoppedEarly) -> str:
    """Why a training stopped early.

    >>> stopped_early_text(StoppedEarly(0, 60, 6000, "auc", 30, 0.75, 3))
    'stopped early after step 60: 3 validations without a better auc than 0.75 of step 30'
    """
    return (
        f"stopped early after step {event.step}: {event.waited} validations without a better "
        f"{event.metric} than {event.best_value:.6g} of step {event.best_step}"
    )


def weights_taken_text(event: WeightsTaken) -> str:
    """What a warm start took, table by table.

    >>> table = {"columns": ["C1"], "by": "value", "matched": 9, "fresh": 2, "dropped": 1}
    >>> told = weights_taken_text(WeightsTaken(0, "runs/a/model", 40, {"C1": table}, 6))
    >>> print(told.splitlines()[1].strip())
    C1 by value: 9 matched, 2 fresh, 1 dropped
    """
    tables = event.tables
    total = {
        name: sum(t[name] for t in tables.values()) for name in ("matched", "fresh", "dropped")
    }
    step = "" if event.step is None else f" (step {event.step})"
    lines = [
        f"{name} by {table['by']}: {table['matched']:,} matched, {table['fresh']:,} fresh, "
        f"{table['dropped']:,} dropped"
        for name, table in tables.items()
        if table["by"] == "value" or table["fresh"] or table["dropped"]
    ]
    return "\n  ".join(
        [
            f"begins with the weights of {event.path}{step}: {event.dense} dense tensors and "
            f"{total['matched']:,} rows of {len(tables)} tables; {total['fresh']:,} rows are "
            f"fresh, {total['dropped']:,} were dropped; optimizers begin anew",
            *lines,
            *(f"kept its initial values: {text}" for text in event.left),
        ]
    )
