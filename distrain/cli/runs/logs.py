"""`distrain logs`: prints the logs of the ranks of a run, or of a service's job."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import READ_S, server_of_run, server_option
from distrain.cli.jobs.service_connection import service_at
from distrain.cli.options import PATH, POSITIVE, json_option
from distrain.cli.output import json_wanted, print_answer, print_result
from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths

if TYPE_CHECKING:
    from distrain.client.client import Client
    from distrain.jobs.api_answers import Artifact, Job
    from distrain.runs.logs import LogOfRank

_LOG = re.compile(r"logs/attempt-(\d+)/rank-(\d+)\.log")


@click.command()
@click.argument("run", metavar="RUN_OR_JOB", type=PATH)
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank. Default: all.")
@click.option(
    "--attempt",
    type=POSITIVE,
    help="Only this attempt. Default: the last one; with --first-error, all.",
)
@click.option("--first-error", is_flag=True, help="Only the first error, and its location.")
@click.option("--follow", "-f", is_flag=True, help="For a service's job: follow it to its end.")
@click.option("--tail", type=POSITIVE, help="For a service's job: start with its last lines.")
@server_option
@json_option("Print JSON: an object with the first error, or one object per log and line.")
def command(
    run: Path,
    rank: int | None,
    attempt: int | None,
    first_error: bool,
    follow: bool,
    tail: int | None,
    server: str | None,
) -> None:
    """Print the output of the ranks of a run, also while they run.

    Each rank of each attempt has its own log in the folder `logs` of the run folder. If a rank
    prints very much, the first and last 64 MiB are kept.

    RUN_OR_JOB is a run folder on this machine, or a job of a service: its id, or the beginning of
    its id. For a scheduler's job, give its run folder, which `distrain status` prints. For a job of
    a service, --follow prints the log of rank 0, or of --rank, as it is written, over all attempts
    until the job ends. Ctrl-C does not stop the job.

    \b
    Examples:
      distrain logs runs/today
      distrain logs runs/today --rank 0 --attempt 1
      distrain logs runs/today --first-error
      distrain logs dlrm-20260301-123000-ab12 -f
      distrain logs dlrm --first-error
      distrain logs dlrm --server https://jobs.example --rank 1 --tail 100
    """
    address = server_of_run(run, server)
    if not address and (follow or tail is not None):
        raise click.UsageError("--follow and --tail are for a job of a service: set --server.")
    if first_error and (follow or tail is not None):
        raise click.UsageError("--first-error cannot be combined with --follow and --tail.")
    if not address:
        from distrain.runs.logs import find_logs

        paths = RunPaths(run)
        account = _account(paths) if first_error else None
        _print_logs(find_logs(paths, attempt, rank), attempt, account, first_error)
        return
    with service_at(address, None if follow else READ_S) as client:
        job = client.find(str(run))
        if_interrupted(f"job {job.id} continues without this command")
        if follow:
            if rank is not None and rank >= job.num_ranks:
                _logs_there(client, job, rank, attempt, tail)  # of an attempt with more ranks
            _follow(client, job.id, rank or 0, attempt, tail)
            return
        ended = {"attempt": job.attempt, "reason": job.reason, "message": job.message}
        logs = _logs_there(client, job, rank, attempt, tail)
        account = ended if job.reason else None
        _print_logs(logs, attempt, account, first_error, job_id=job.id)


def _print_logs(
    logs: "Sequence[LogOfRank]",
    attempt: int | None,
    account: Mapping[str, Any] | None,
    first_error: bool,
    **of_job: str,
) -> None:
    """Print the logs of one attempt, or with `first_error` only the first error in all `logs`.

    Args:
        logs: Logs in the order of attempts and ranks.
        attempt: The attempt to print; `None` for the last one.
        account: As in `_print_error`.
        of_job: Further fields of the JSON documents.
    """
    if first_error:
        _print_error(logs, account)
        return
    shown = [log for log in logs if log.attempt == (attempt or logs[-1].attempt)]
    for log in shown:
        text = log.text()
        print_answer(**of_job, attempt=log.attempt, rank=log.rank, path=log.name, text=text)
        if len(shown) > 1:
            print_result(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        print_result(text.rstrip("\n"))


def _account(paths: RunPaths) -> dict[str, Any] | None:
    """Return why the first failed attempt of a run ended, as the coordinator recorded it.

    The result has `attempt`, `reason` and `message`; `None` if no attempt failed. It is printed
    because ranks that are killed log no error.
    """
    from distrain.runs.run_file import read_summary

    summary = read_summary(paths) or {}
    ends = [*summary.get("restarts", ()), summary]
    end = next((end for end in ends if end.get("reason")), None)
    return end and {name: end.get(name) for name in ("attempt", "reason", "message")}


def _print_error(logs: "Iterable[LogOfRank]", account: Mapping[str, Any] | None) -> None:
    """Print the first error in the logs of a run's ranks.

    If no rank logged an error, or only errors about lost peers, also print `account`, the reason
    that the coordinator recorded (`None` if there is none). If there are only errors about lost
    peers, also name the ranks without an error.
    """
    from distrain.runs.logs import first_error

    error, silent = first_error(logs)
    of_peers = error is not None and error.of_peers
    account = account if error is None or of_peers else None
    if json_wanted():
        document: dict[str, Any] | None = None
        if error is not None:
            document = {"attempt": error.log.attempt, "rank": error.log.rank}
            document |= {"path": error.log.name, "line": error.line, "text": error.text}
            document |= {"of_peers": error.of_peers, "ranks_without_output": silent}
        print_answer(error=document, coordinator=account)
        return
    if error is None:
        print_result("No rank has logged an error.")
    if account:
        print_result(f"The coordinator's report: {account['reason']}: {account['message']}")
    if error is None:
        return
    if of_peers:
        print_result(_of_lost_peers(silent))
    where = f"attempt {error.log.attempt}, rank {error.log.rank}"
    print_result(f"==> {where}: {error.log.name}, line {error.line} <==", bold=True)
    print_result(error.text)


def _of_lost_peers(silent: Sequence[int]) -> str:
    lost = "No rank logged a cause, only that it lost another rank."
    if not silent:
        return lost
    ranks = f"Rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
    return f"{lost} {ranks} logged nothing: killed from outside, or by Linux when out of memory."


def _follow(
    client: "Client", job_id: str, rank: int, attempt: int | None, tail: int | None
) -> None:
    """Print the log of a rank as it is written; with `--json`, a document for each line."""
    for line in lines_of(client.logs(job_id, rank=rank, attempt=attempt, tail=tail, follow=True)):
        print_answer(job_id=job_id, rank=rank, text=line)
        print_result(line)


def _logs_there(
    client: "Client", job: "Job", rank: int | None, attempt: int | None, tail: int | None
) -> "list[LogOfRank]":
    """Return a job's logs, ordered by attempt and rank.

    If `rank`, `attempt` or `tail` is not `None`: only the logs of this rank or attempt, and only
    the last `tail` lines of each. Raises `InputError` if there are no logs.
    """
    from distrain.runs.logs import LogOfRank

    def read(attempt: int, rank: int) -> bytes:
        return b"".join(client.logs(job.id, rank=rank, attempt=attempt, tail=tail))

    logs = []
    for file in _files(client, job):
        if match := _LOG.fullmatch(file.name):
            found = int(match[1]), int(match[2])
            if attempt in (None, found[0]) and rank in (None, found[1]):
                logs.append(LogOfRank(*found, file.name, partial(read, *found)))
    if not logs:
        raise InputError(
            "no rank has printed anything" if rank is attempt is None else "no such log",
            where={"job": job.id, "state": job.state},
            hint=f"See its state: distrain status {job.id}",
        )
    return sorted(logs, key=lambda log: (log.attempt, log.rank))


def _files(client: "Client", job: "Job") -> "tuple[Artifact, ...]":
    from distrain.client.errors import NotFound

    try:
        return client.artifacts(job.id, below="logs")
    except NotFound:  # the folder is missing: no rank has started
        return ()


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a byte stream that arrives in arbitrary pieces.

    >>> list(lines_of([b"one\\ntw", b"o \\xc3", b"\\xa4\\n", b"\\nrest"]))
    ['one', 'two \u00e4', '', 'rest']
    """
    rest = ""
    for text in codecs.iterdecode(pieces, "utf-8", "replace"):
        *lines, rest = (rest + text).split("\n")
        yield from lines
    if rest:
        yield rest
