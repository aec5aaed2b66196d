"""Logs runs to MLflow Tracking with MLflow's own client."""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from distrain.jobs.job_view import AttemptStarted, Notice, Record
from distrain.jobs.run_paths import RunPaths
from distrain.runs.sinks.base import RunFacts, Stamped, scalars

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
_JOB_TAG = "distrain.job_id"

_STATUS = {"succeeded": "FINISHED", "cancelled": "KILLED"}
# Characters and path parts that MLflow rejects, together with all metrics of the same call.
_REFUSED = re.compile(r"[^\w .:/-]|(?<=/)\.{0,2}/")
_METRICS_A_CALL, _PARAMETERS_A_CALL, _LONGEST_NAME, _LONGEST_VALUE = 1000, 100, 250, 500


def _accepted(name: str) -> str:
    """Return the name if MLflow accepts it, else a unique replacement.

    >>> _accepted("valid/price.rmse"), _accepted("valid/a+b"), len(_accepted(500 * "a"))
    ('valid/price.rmse', 'valid/a_b.12264438', 250)
    """
    cleaned = _REFUSED.sub("_", name)
    if cleaned == name and len(name) <= _LONGEST_NAME:
        return name
    mark = f".{crc32(name.encode()):08x}"
    return cleaned[: _LONGEST_NAME - len(mark)] + mark


class MLflowTracking:
    """Logs each record's values as metrics over steps, and the spec as parameters.

    A resumed run continues the same MLflow run. MLflow cannot delete points: steps that a new
    attempt repeats have two points, of which the later one counts.

    Args:
        uri: The tracking server or store; `None` for `MLFLOW_TRACKING_URI`, and if that is not set,
            a SQLite file in the run folder.
    """

    def __init__(self, uri: str | None = None):
        self._uri = uri
        self._client: MlflowClient | None = None
        self._run_id = ""

    def open(self, facts: RunFacts) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.tracking import is_tracking_uri_set

        beside = self._uri is None and not is_tracking_uri_set()
        paths = RunPaths(facts.run_dir.absolute())
        client = MlflowClient(f"sqlite:///{paths.mlflow_store}" if beside else self._uri)
        name = os.environ.get(EXPERIMENT_VARIABLE, "distrain")
        experiment = client.get_experiment_by_name(name)
        artifacts = paths.mlflow_artifacts.as_uri() if beside else None
        number = (
            experiment.experiment_id if experiment else client.create_experiment(name, artifacts)
        )
        runs = client.search_runs([number], f"tags.`{_JOB_TAG}` = '{facts.job_id}'", max_results=1)
        if runs:
            self._run_id = runs[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {**facts.tags, _JOB_TAG: facts.job_id, "distrain.run_dir": str(facts.run_dir)}
            run = client.create_run(number, tags=tags, run_name=facts.job_id)
            self._run_id = run.info.run_id
            fields = [
                Param(_accepted(field), str(value)[:_LONGEST_VALUE])
                for field, value in facts.parameters.items()
            ]
            for start in range(0, len(fields), _PARAMETERS_A_CALL):
                part = fields[start : start + _PARAMETERS_A_CALL]
                client.log_batch(self._run_id, params=part)
        self._client = client

    def write(self, entries: Sequence[Stamped]) -> None:
        from mlflow.entities import Metric

        metrics = []
        for entry, at_s in entries:
            if isinstance(entry, Record):
                metrics += [
                    Metric(_accepted(name), float(value), round(1000 * at_s), entry.step)
                    for name, value in scalars(entry).items()
                ]
            elif isinstance(entry, AttemptStarted):
                self._open_client.set_tag(self._run_id, "distrain.attempt", entry.attempt)
            elif isinstance(entry, Notice):
                self._open_client.set_tag(self._run_id, "distrain.notice", entry.text)
        for start in range(0, len(metrics), _METRICS_A_CALL):
            part = metrics[start : start + _METRICS_A_CALL]
            self._open_client.log_batch(self._run_id, metrics=part)

    def close(self, state: str) -> None:
        self._open_client.set_terminated(self._run_id, _STATUS.get(state, "FAILED"))

    @property
    def _open_client(self) -> "MlflowClient":
        assert self._client is not None  # only after `open`
        return self._client
