"""`distrain logs`: the logs of the ranks of a run, or of a job of a service."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.jobs import server_of_run, server_option
from distrain.cli.options import PATH, POSITIVE, json_option
from distrain.cli.output import VERSION, json_wanted, print_answer, print_json, print_result

if TYPE_CHECKING:
    from distrain.run_paths import RunPaths
    from distrain.runs import LoggedError, LogOfRank


@click.command()
@click.argument("run", metavar="RUN_OR_JOB", type=PATH)
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank. Default: all.")
@click.option(
    "--attempt",
    type=POSITIVE,
    help="Only this attempt. Default: the last one; with --first-error, all.",
)
@click.option("--first-error", is_flag=True, help="Only the error that came first, and its place.")
@click.option("--follow", "-f", is_flag=True, help="Of a service's job: go on to its end.")
@click.option("--tail", type=POSITIVE, help="Of a service's job: begin with its last lines.")
@server_option
@json_option("Print JSON: an object with the first error, or a line with an object for each log.")
def command(
    run: Path,
    rank: int | None,
    attempt: int | None,
    first_error: bool,
    follow: bool,
    tail: int | None,
    server: str | None,
    as_json: bool,
) -> None:
    """Print what the ranks of a run printed, also while they run.

    Each rank of each attempt has a log of its own in the run directory's folder `logs`. Of one that
    printed very much, the first and last 64 MiB are kept.

    What is no run directory on this machine is taken as a job of a service, if one is known: its
    id, or its beginning. --follow prints the log of rank 0, or of --rank, as it comes: that of each
    attempt, to the end of the job. Ctrl-C leaves the job alone.

    \b
    Examples:
      distrain logs runs/today
      distrain logs runs/today --rank 0 --attempt 1
      distrain logs runs/today --first-error
      distrain logs dlrm-20260301-123000-ab12 -f
      distrain logs dlrm --first-error
      distrain logs dlrm --server https://jobs.example --rank 1 --tail 100
    """
    if address := server_of_run(run, server):
        from distrain.cli.runs.served_logs import error_of_job, print_logs

        if first_error:
            if follow or tail is not None:
                raise click.UsageError("--first-error goes without --follow and --tail.")
            _print_error(*error_of_job(address, str(run), rank, attempt))
            return
        print_logs(address, str(run), rank, attempt, tail, follows=follow, as_json=as_json)
        return
    if follow or tail is not None:
        raise click.UsageError("--follow and --tail are for a job of a service: name it, --server.")
    from distrain.run_paths import RunPaths
    from distrain.runs import find_logs

    paths = RunPaths(run)
    logs = find_logs(paths, attempt, rank)
    if first_error:
        from distrain.runs import first_error as find_first_error, silent_ranks

        error = find_first_error(logs)
        silent = silent_ranks(logs, error.log.attempt) if error else []
        _print_error(error, _account(paths), str(error.log.path) if error else "", silent)
        return
    if attempt is None:
        logs = [log for log in logs if log.attempt == logs[-1].attempt]
    for log in logs:
        if as_json:
            print_json({**_place(log), "text": log.text()})
            continue
        if len(logs) > 1:
            print_result(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        print_result(log.text().rstrip("\n"))


def _account(paths: "RunPaths") -> dict[str, Any] | None:
    """The coordinator's account of an attempt's end: a rank that was killed logs nothing of it."""
    from distrain.runs import read_summary

    summary = read_summary(paths) or {}
    ends = [*summary.get("restarts", ()), summary]
    end = next((end for end in ends if end.get("reason")), None)
    return end and {name: end.get(name) for name in ("attempt", "reason", "message")}


def _place(log: "LogOfRank") -> dict[str, Any]:
    return {"version": VERSION, "attempt": log.attempt, "rank": log.rank, "path": str(log.path)}


def _print_error(
    error: "LoggedError | None",
    account: Mapping[str, Any] | None,
    path: str,
    silent: Sequence[int] = (),
) -> None:
    """Print the error of a run's ranks that came first.

    Args:
        account: The coordinator's account of the attempt's end, for errors that no rank logged.
        path: The name of the error's log.
        silent: The ranks of its attempt that logged no error.
    """
    of_peers = error is not None and error.of_peers
    account = account if error is None or of_peers else None
    if json_wanted():
        document = None
        if error is not None:
            document = {"attempt": error.log.attempt, "rank": error.log.rank, "path": path}
            document |= {"line": error.line, "text": error.text, "of_peers": error.of_peers}
            document |= {"silent_ranks": list(silent)}
        print_answer(error=document, coordinator=account)
        return
    if error is None:
        print_result("No rank has logged an error.")
    if account:
        print_result(f"The coordinator's account: {account['reason']}: {account['message']}")
    if error is None:
        return
    if of_peers:
        print_result(_of_lost_peers(silent))
    where = f"attempt {error.log.attempt}, rank {error.log.rank}"
    print_result(f"==> {where}: {path}, line {error.line} <==", bold=True)
    print_result(error.text)


def _of_lost_peers(silent: Sequence[int]) -> str:
    lost = "No rank has logged a cause, only that it lost a peer."
    if not silent:
        return lost
    ranks = f"Rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
    return f"{lost} {ranks} logged nothing: killed from outside, or by Linux for lack of memory."
