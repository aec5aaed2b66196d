"""Names of targets for display: `prep` writes a table's target as the column `label`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from distrain.jobs.spec.load import parse_yaml

Value = TypeVar("Value")
LABEL = "label"


def with_own_name(targets: Mapping[str, Value] | None, name: str) -> dict[str, Value]:
    """Return values by target, with the key `label` renamed to `name`.

    It is not renamed if another target has that name.

    >>> with_own_name({"label": 1, "bought": 2}, "price"), with_own_name(None, "price")
    ({'price': 1, 'bought': 2}, {})
    """
    targets = targets or {}
    name = LABEL if name in targets else name
    return {name if target == LABEL else target: value for target, value in targets.items()}


def own_name(model: Path) -> str:
    """Return the column of a saved model's first target, from its workflow; else `label`."""
    try:
        text = (model / "workflow" / "features.yaml").read_text(encoding="utf-8")
        target = parse_yaml(text, keep_words=True)["target"]
        return str(target["column"] if isinstance(target, Mapping) else target)
    except (OSError, ValueError, KeyError, TypeError):  # prepared by other tools, or remote
        return LABEL
