"""Finds the logs of a run's ranks, and the first error in them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from distrain.errors import InputError
from distrain.jobs.reasons import Reason, says_peer_lost
from distrain.jobs.run_paths import RunPaths, check_run_dir, of_all_ranks
from distrain.runs.log_bytes import read_log

_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) ")
_UNANNOUNCED = re.compile(
    r"Traceback \(most recent call last\)|Fatal Python error|terminate called|Segmentation fault"
    r"|^\w*(Error|Exception)\b"
)
_LATEST = "9"  # later than any time stamp

LINES_BEFORE, LINES_AFTER = 5, 40

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


@dataclass(frozen=True)
class LoggedError:
    log: LogOfRank
    line: int  # 1-based line number
    text: str  # the error with some lines before it, up to the next logged line
    at: str  # the last time stamp up to the error
    of_peers: bool  # whether it only reports that another rank was lost, which is not the cause


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


def first_error(logs: Iterable[LogOfRank]) -> tuple[LoggedError | None, list[int]]:
    """Return the first error in logs, and the ranks of its attempt whose logs have no error.

    The first error is the earliest one, by time stamp, of the first attempt that has an error. An
    error about a lost peer is returned only if no attempt has another error. A killed rank logs
    nothing: if all other ranks report a lost peer, the ranks without an error are the lost peers.
    Without any error, returns `None` and the ranks of the last attempt.

    `logs` are in the order of the attempts; the logs of later attempts are read only if needed.
    """
    of_peers: tuple[LoggedError | None, list[int]] = None, []
    for _, of_attempt in groupby(logs, key=lambda log: log.attempt):
        by_rank = {log.rank: _first_error(log) for log in of_attempt}
        earliest = min(
            filter(None, by_rank.values()), key=lambda e: (e.of_peers, e.at), default=None
        )
        found = earliest, [rank for rank, error in by_rank.items() if error is None]
        if earliest is not None and not earliest.of_peers:
            return found
        if of_peers[0] is None:
            of_peers = found
    return of_peers


def _first_error(log: LogOfRank) -> LoggedError | None:
    """Return the first error in a log that is not about a lost peer, or else the first error.

    An error is a line of level ERROR or CRITICAL, or a traceback without such a line. `None` if
    there is none.
    """
    lines = log.text().splitlines()
    at, of_peer = _LATEST, None
    for index, line in enumerate(lines):
        stamp = _TIME.match(line)
        at = stamp[1] if stamp else at
        if (stamp and stamp[2] in ("ERROR", "CRITICAL")) or _UNANNOUNCED.search(line):
            end = _end_of_block(lines, index)
            block = "\n".join(lines[index:end])
            of_peers = says_peer_lost(block) or Reason.PEER_LOST in block
            text = "\n".join(lines[max(0, index - LINES_BEFORE) : end])
            error = LoggedError(log, index + 1, text, at, of_peers)
            if not of_peers:
                return error
            of_peer = of_peer or error
    return of_peer


def _end_of_block(lines: Sequence[str], start: int) -> int:
    """Return the index after the lines that belong to the error at index `start`.

    They end before the next logged line of a level below ERROR, and are at most `LINES_AFTER`.
    """
    for index in range(start + 1, min(len(lines), start + LINES_AFTER)):
        stamp = _TIME.match(lines[index])
        if stamp and stamp[2] not in ("ERROR", "CRITICAL"):
            return index
    return min(len(lines), start + LINES_AFTER)
