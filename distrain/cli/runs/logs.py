"""`distrain logs`: prints the logs of the ranks of a run, or of a service's job."""

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import READ_S, server_of_run, server_option
from distrain.cli.jobs.service_connection import server_argument, service_at
from distrain.cli.options import PATH, POSITIVE, json_option
from distrain.cli.output import print_answer, print_result
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
@click.option("--attempt", type=POSITIVE, help="Only this attempt. Default: the last one.")
@click.option("--follow", "-f", is_flag=True, help="For a service's job: follow it to its end.")
@click.option("--tail", type=POSITIVE, help="For a service's job: start with its last lines.")
@server_option
@json_option("Print JSON: one object per log, and with --follow per line.")
def command(
    run: Path,
    rank: int | None,
    attempt: int | None,
    follow: bool,
    tail: int | None,
    server: str | None,
) -> None:
    """Print the output of the ranks of a run, even while they run.

    Each rank of each attempt has its own log in the folder `logs` of the run folder. If a rank
    prints very much, the first and last 64 MiB are kept.

    RUN_OR_JOB is a run folder on this machine, or a job of a service: its id, or the beginning or
    end of its id. For a scheduler's job, give its run folder, which `distrain status` prints. For a
    job of a service, --follow prints the log of rank 0, or of --rank, as it is written, over all
    attempts until the job ends. Ctrl-C does not stop the job.

    \b
    Examples:
      distrain logs runs/today
      distrain logs runs/today --rank 0 --attempt 1
      distrain logs dlrm-20260301-123000-ab12 -f
      distrain logs dlrm --server https://jobs.example --rank 1 --tail 100
    """
    address = server_of_run(run, server)
    if not address and (follow or tail is not None):
        raise click.UsageError("--follow and --tail are for a job of a service: set --server.")
    if not address:
        from distrain.runs.logs import find_logs

        _print_logs(find_logs(RunPaths(run), attempt, rank), attempt)
        return
    with service_at(address, None if follow else READ_S) as client:
        job = client.find(str(run))
        if_interrupted(f"job {job.id} continues without this command")
        if follow:
            # Only an earlier attempt has such a rank, and no attempt such a number.
            if (rank or 0) >= job.num_ranks or (attempt or 0) > job.attempt:
                _logs_there(client, job, rank, attempt, tail)
            _follow(client, job.id, rank or 0, attempt, tail)
            return
        _print_logs(_logs_there(client, job, rank, attempt, tail), attempt, job_id=job.id)


def _print_logs(logs: "Sequence[LogOfRank]", attempt: int | None, **of_job: str) -> None:
    """Print the logs of one attempt.

    Args:
        logs: Logs in the order of attempts and ranks.
        attempt: The attempt to print; `None` for the last one.
        of_job: Further fields of the JSON documents.
    """
    shown = [log for log in logs if log.attempt == (attempt or logs[-1].attempt)]
    for log in shown:
        text = log.text()
        print_answer(**of_job, attempt=log.attempt, rank=log.rank, path=log.name, text=text)
        if len(shown) > 1:
            print_result(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        print_result(text.rstrip("\n"))


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
            hint=f"See its state: distrain status {job.id}{server_argument(client.address)}",
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
