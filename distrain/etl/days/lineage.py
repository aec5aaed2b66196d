"""What a workflow says of the days that it learnt, in `workflow.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from distrain.etl.days.seen import FITTED_ON
from distrain.etl.workflow import Workflow

_KEEP_COUNTS = "keep_counts"
_UPDATES = "updates"


def keep_counts_of(workflow: Workflow) -> int:
    """Of how many values without an id counts are kept, by vocabulary; 0 if it does not say."""
    found = workflow.record.get(_KEEP_COUNTS, 0)
    return found if isinstance(found, int) else 0


def with_keep_counts(workflow: Workflow, keep_counts: int) -> Workflow:
    """The workflow that says so; one that keeps none and never said so stays as it is."""
    if keep_counts == keep_counts_of(workflow):
        return workflow
    return workflow.with_record(**{_KEEP_COUNTS: keep_counts})


def with_update(
    workflow: Workflow, inputs: Sequence[str], rows: int, new_ids: Mapping[str, int]
) -> Workflow:
    found = workflow.record.get(_UPDATES)
    update = {
        "inputs": list(inputs),
        "rows": rows,
        "new_ids": dict(new_ids),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return workflow.with_record(**{_UPDATES: [*(found if isinstance(found, list) else []), update]})


def learnt_before(workflow: Workflow, inputs: Sequence[str]) -> tuple[str, ...]:
    """Those of some inputs that the workflow was fitted on, or has learnt, under the same name."""
    updates = workflow.record.get(_UPDATES)
    days = [workflow.record.get(FITTED_ON), *(updates if isinstance(updates, list) else [])]
    known = {path for day in days if isinstance(day, Mapping) for path in day.get("inputs", [])}
    return tuple(path for path in inputs if path in known)
