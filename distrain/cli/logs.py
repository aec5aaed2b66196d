"""`distrain logs`: what the ranks of a run printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.output import VERSION, answer, document, json_wanted, tell
from distrain.cli.params import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrain.report.logs import LoggedError, RankLog
    from distrain.run_paths import RunPaths


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank. Default: all.")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    help="Only this attempt. Default: the last one; with --first-error, all.",
)
@click.option("--first-error", is_flag=True, help="Only the error that came first, and its place.")
@json_option("Print JSON: an object with the first error, or a line with an object for each log.")
def command(
    run: Path, rank: int | None, attempt: int | None, first_error: bool, as_json: bool
) -> None:
    """Print what the ranks of a run printed, also while they run.

    Each rank of each attempt has a log of its own in RUN/logs. Of one that printed very much, the
    first and last 8 MiB are kept.

    \b
    Examples:
      distrain logs runs/today
      distrain logs runs/today --rank 0 --attempt 1
      distrain logs runs/today --first-error
    """
    from distrain.report.logs import find_logs
    from distrain.run_paths import RunPaths

    paths = RunPaths(run)
    logs = find_logs(paths, attempt, rank)
    if first_error:
        _print_first_error(logs, paths)
        return
    if attempt is None:
        logs = [log for log in logs if log.attempt == logs[-1].attempt]
    for log in logs:
        if as_json:
            document({**_place(log), "text": log.text()})
            continue
        if len(logs) > 1:
            tell(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        tell(log.text().rstrip("\n"))


def _print_first_error(logs: "Sequence[RankLog]", paths: "RunPaths") -> None:
    from distrain.report.logs import first_error

    error = first_error(logs)
    account = _account(paths) if error is None or error.of_peers else None
    if json_wanted():
        answer(error=error and _as_json(error), coordinator=account)
        return
    if error is None:
        tell("No rank has logged an error.")
    else:
        where = f"attempt {error.log.attempt}, rank {error.log.rank}"
        tell(f"==> {where}: {error.log.path}, line {error.line} <==", bold=True)
        tell(error.text)
    if account:
        tell(f"The coordinator's account: {account['reason']}: {account['message']}")


def _account(paths: "RunPaths") -> dict[str, Any] | None:
    """The coordinator's: a rank that was killed has no last words."""
    from distrain.report import read_summary

    summary = read_summary(paths) or {}
    ends = [*summary.get("restarts", ()), summary]
    told = next((end for end in ends if end.get("reason")), None)
    return told and {name: told.get(name) for name in ("attempt", "reason", "message")}


def _place(log: "RankLog") -> dict[str, Any]:
    return {"version": VERSION, "attempt": log.attempt, "rank": log.rank, "path": str(log.path)}


def _as_json(error: "LoggedError") -> dict[str, Any]:
    where = {"attempt": error.log.attempt, "rank": error.log.rank, "path": str(error.log.path)}
    return {**where, "line": error.line, "text": error.text, "of_peers": error.of_peers}
