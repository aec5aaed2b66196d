"""Checks a job's data, output directories and model on a worker, before the job is submitted."""

from collections.abc import Mapping
from typing import Any

from distrain.client.client import Client
from distrain.errors import ClusterError, ErrorCollector


def check_on_worker(
    api: Client, spec: Mapping[str, Any], *, project: str | None = None, cluster: str | None = None
) -> list[str]:
    """Check a spec on a worker of a scheduler or a service; return the worker's notes.

    Raises:
        InputError: The spec or its data have mistakes; the error lists all of them.
        ClusterError: No worker could run the check.
    """
    checked = api.validate(spec, project=project, cluster=cluster, data=True)
    if checked.document.get("state") == "lost":
        why = checked.document.get("error") or "the check was lost"
        raise ClusterError(
            f"the job could not be checked on a worker: {why}",
            where={"server": api.address},
            hint="Nothing was submitted. `distrain jobs` lists the jobs that use the workers. Or "
            "submit without --check.",
        )
    mistakes = ErrorCollector()
    for one in checked.errors:
        of_worker = one.model_extra or {}
        if of_worker.get("message"):
            mistakes.add_json(of_worker, on="a worker")
        else:
            mistakes.add_json({"message": one.detail}, at=one.pointer)
    mistakes.raise_collected()
    return checked.notes
