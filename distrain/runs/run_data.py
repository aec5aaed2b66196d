"""Reads a whole run folder: succeeded, failed, interrupted or still running."""

import fcntl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrain.jobs.job_view import Record, record_of_model
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.target_names import own_name, with_own_name
from distrain.runs.attempts import EARLIER, read_attempts, records_of
from distrain.runs.finish_run import current_summary
from distrain.runs.records.merging import add_up, stall_pct
from distrain.runs.run_file import RunFile, read_run_and_spec, read_summary
from distrain.runs.stored.folder import open_own_run

RUNNING, BROKEN_OFF = "running", "broken off"


@dataclass(frozen=True)
class RunData:
    """The content of a run folder, as it was read."""

    root: Path
    run: RunFile
    spec: JobSpec
    records: tuple[Record, ...]  # the records of steps that no later attempt repeated, in order
    # `summary.json`; while the run has not ended, the facts of its newest attempt
    summary: Mapping[str, Any]
    # the summary's state; without one, `running` while an attempt is recorded, a command uses the
    # run or a service has its job, else `broken off`
    state: str

    @property
    def ended(self) -> bool:
        return self.state not in (RUNNING, BROKEN_OFF)

    @property
    def name(self) -> str:
        return self.run.job_id

    @property
    def train(self) -> list[Record]:
        return [record for record in self.records if record.split == "train"]

    @property
    def valid(self) -> list[Record]:
        return [record for record in self.records if record.split == "valid"]

    @property
    def scored(self) -> Record | None:
        """The record of the saved model's validation, else of the last validation.

        Without validations, this is the last training record, or `None` if there is none.
        """
        train = self.train
        of_model = record_of_model(self.valid, self.summary.get("model_step"))
        return of_model or (train[-1] if train else None)

    @property
    def outcome(self) -> dict[str, Any]:
        """The fields of the summary, by name.

        Missing numbers of steps and rows, speeds and metrics are computed from the records. While
        the run trains, most fields are missing in `summary`.
        """
        outcome: dict[str, Any] = {"num_ranks": self.spec.resources.num_ranks}
        if train := self.train:
            last, seconds = train[-1], self.mean_seconds()
            speeds = [(one.rows, one.rows_per_s) for one in train if one.rows_per_s]
            took_s = sum(rows / speed for rows, speed in speeds)
            outcome |= {
                "steps": last.step,
                "rows": last.rows_total,
                "wall_s": last.elapsed_s,
                "rows_per_s": sum(rows for rows, _ in speeds) / took_s if took_s else None,
                "stall_pct": [stall_pct(seconds)] if any(seconds.values()) else [],
            }
        if (scored := self.scored) is not None:
            names = ("auc", "auc_bound", "normalised_entropy", "targets", "own")
            outcome |= {name: getattr(scored, name) for name in names}
            outcome |= {"scored_on": scored.split, "scored_rows": scored.rows}
            outcome["log_loss"] = scored.loss
        return outcome | {n: one for n, one in self.summary.items() if one not in (None, [], ())}

    @property
    def restarts(self) -> list[Mapping[str, Any]]:
        return list(self.summary.get("restarts", ()))

    def rank_seconds(self) -> list[Mapping[str, float]]:
        """Return each rank's wall time by phase over the whole training; empty before its end."""
        return list(self.summary.get("seconds") or ())

    def mean_seconds(self) -> Mapping[str, float]:
        """Return the wall time by phase: means over the ranks, summed over the training records."""
        return add_up([record.seconds or {} for record in self.train])

    def problem(self) -> str:
        """Return the reason and message of a run that failed or was cancelled, else "".

        "" also while the run has not ended.
        """
        reason = self.summary.get("reason")
        if not reason or not self.ended:
            return ""
        return f"{reason}: {self.summary.get('message') or ''}".strip()


def read_run_data(root: Path) -> RunData:
    """Read a run folder, also while the run trains.

    Raises `InputError` if there is no readable run or a record is damaged, and `SpecError` if the
    run's spec is invalid.
    """
    paths = RunPaths(root)
    run, spec = read_run_and_spec(root)
    with open_own_run(paths) as folder:
        attempts = read_attempts(folder)
    records = tuple(records_of(attempts))
    summary = current_summary(attempts, read_summary(paths))
    is_served = run.service is not None and "state" not in summary
    newest = paths.attempt_records(attempts[-1].number if attempts else EARLIER)
    at_work = _is_locked(paths.run) or _is_locked(newest) or is_served
    state = str(summary.get("state", BROKEN_OFF))
    return RunData(root, run, spec, records, summary, RUNNING if at_work else state)


def read_run_to_show(root: Path) -> RunData:
    """Return a run's data for display: the target `label` gets its name in the raw table."""
    data, name = read_run_data(root), own_name(RunPaths(root).model)
    records = (replace(one, targets=with_own_name(one.targets, name)) for one in data.records)
    summary = {
        key: with_own_name(value, name) if key == "targets" else value
        for key, value in data.summary.items()
    }
    return replace(data, records=tuple(records), summary=summary)


def _is_locked(path: Path) -> bool:
    """Return True if a process holds an exclusive lock on the file.

    Return False if the file cannot be opened, or if its filesystem does not support locks.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
