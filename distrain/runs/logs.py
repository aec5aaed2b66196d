"""Finds the logs of a run's ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths, check_run_dir, of_all_ranks
from distrain.runs.log_bytes import read_log

_NO_LOGS = (
    "With the backends inline and env, ranks print where their command was started. With dask, "
    "logs begin when the ranks start."
)
_NO_RUN = "Is it a run folder? It holds spec.yaml and run.json."


@dataclass(frozen=True)
class LogOfRank:
    attempt: int
    rank: int
    name: str  # its path, or its name in the run folder of a service's job
    read: Callable[[], bytes]

    def text(self) -> str:
        return self.read().decode(errors="replace")


def find_logs(
    paths: RunPaths, attempt: int | None = None, rank: int | None = None
) -> list[LogOfRank]:
    """Return the logs of a run, or of one attempt or rank, ordered by attempt and rank.

    Raises `InputError` if there is no such log.
    """
    check_run_dir(paths)
    logs = [
        LogOfRank(number, of_rank, str(path), partial(read_log, path))
        for number in paths.attempts()
        for of_rank, path in of_all_ranks(paths.log(0, number)).items()
    ]
    chosen = [log for log in logs if attempt in (None, log.attempt) and rank in (None, log.rank)]
    if not chosen:
        there = ", ".join(f"attempt {log.attempt} rank {log.rank}" for log in logs)
        raise InputError(
            "no such log" if logs else "this run has no logs of ranks",
            where={"run": str(paths.root)} | ({"there are": there} if there else {}),
            hint=None if logs else _NO_LOGS if paths.run.is_file() else _NO_RUN,
        )
    return chosen
