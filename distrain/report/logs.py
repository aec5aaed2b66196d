"""What the ranks of a run printed, and where the first of them went wrong."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrain.coordinator.log_pump import read_log
from distrain.errors import InputError
from distrain.run_paths import RunPaths, check_run_dir

_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) ")
_UNANNOUNCED = re.compile(
    r"Traceback \(most recent call last\)|Fatal Python error|terminate called|Segmentation fault"
    r"|^\w*(Error|Exception)\b",
)
# What ranks say that only lost a peer; lower case.
_OF_PEERS = ("connection closed by peer", "connection reset by peer", "socket closed", "peerlost")
_LATEST = "9"  # after any time that a log may tell

LINES_BEFORE, LINES_AFTER = 5, 40


@dataclass(frozen=True)
class RankLog:
    """One rank's log of one attempt."""

    attempt: int
    rank: int
    path: Path

    def text(self) -> str:
        """What is kept of it."""
        return read_log(self.path).decode(errors="replace")


@dataclass(frozen=True)
class LoggedError:
    """An error in a log.

    Attributes:
        log: Whose.
        line: Its line's number, from 1.
        text: It, with some lines before and what follows until something else is logged.
        at: When, as the log tells it; of the line before it that has a time.
        of_peers: Whether it only says that a peer was lost, which another rank's error explains.
    """

    log: RankLog
    line: int
    text: str
    at: str
    of_peers: bool


def find_logs(
    paths: RunPaths, attempt: int | None = None, rank: int | None = None
) -> list[RankLog]:
    """The logs of a run, by attempt and rank.

    Args:
        paths: The run directory.
        attempt: Only of this one; `None`: of all.
        rank: Only of this one.

    Raises:
        InputError: There is no such folder, or no such log; the message says which there are.
    """
    check_run_dir(paths)
    found = [
        RankLog(number, int(match[1]), path)
        for number in paths.attempts()
        for path in _inside(paths.log(0, number).parent)
        if (match := re.fullmatch(r"rank-(\d+)\.log", path.name))
    ]
    wanted = [log for log in found if attempt in (None, log.attempt) and rank in (None, log.rank)]
    if not wanted:
        there = ", ".join(f"attempt {log.attempt} rank {log.rank}" for log in _sorted(found))
        raise InputError(
            "no such log" if found else "no rank of this run has printed anything",
            where={"run": str(paths.root)} | ({"there are": there} if there else {}),
            hint=None if found else "Is it a run directory? Logs lie in its folder `logs`.",
        )
    return _sorted(wanted)


def first_error(logs: Sequence[RankLog]) -> LoggedError | None:
    """The earliest error in some logs; errors about lost peers count only if there is no other."""
    errors = [error for log in logs for error in [_first_error(log)] if error is not None]
    return min(errors, key=lambda e: (e.of_peers, e.log.attempt, e.at), default=None)


def _first_error(log: RankLog) -> LoggedError | None:
    lines = log.text().splitlines()
    at, found = _LATEST, None
    for index, line in enumerate(lines):
        stamp = _TIME.match(line)
        at = stamp[1] if stamp else at
        if (stamp and stamp[2] in ("ERROR", "CRITICAL")) or _UNANNOUNCED.search(line):
            end = _end_of_block(lines, index)
            block = "\n".join(lines[index:end])
            of_peers = any(sign in block.lower() for sign in _OF_PEERS)
            text = "\n".join(lines[max(0, index - LINES_BEFORE) : end])
            error = LoggedError(log, index + 1, text, at, of_peers)
            if not of_peers:
                return error
            found = found or error
    return found


def _end_of_block(lines: Sequence[str], start: int) -> int:
    for index in range(start + 1, min(len(lines), start + LINES_AFTER)):
        stamp = _TIME.match(lines[index])
        if stamp and stamp[2] not in ("ERROR", "CRITICAL"):
            return index
    return min(len(lines), start + LINES_AFTER)


def _sorted(logs: Iterable[RankLog]) -> list[RankLog]:
    return sorted(logs, key=lambda log: (log.attempt, log.rank))


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
