"""`distrain logs`: prints the logs of the ranks of a run, or of a service's job."""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs.choose_server import READ_S, server_of_run, server_option
from distrain.cli.jobs.service_connection import service_at
from distrain.cli.options import PATH, POSITIVE, json_option
from distrain.cli.output import VERSION, json_wanted, print_answer, print_json, print_result
from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths

if TYPE_CHECKING:
    from distrain.client.client import Client
    from distrain.jobs.api_answers import Artifact, Job
    from distrain.runs.logs import LoggedError, LogOfRank

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

    If RUN_OR_JOB is not a run folder on this machine, it is a job of a service: an id, or its
    beginning. --follow prints the log of rank 0, or of --rank, as it is written, over all attempts
    to the end of the job. Ctrl-C does not stop the job.

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
        if first_error:
            if follow or tail is not None:
                raise click.UsageError("--first-error cannot be combined with --follow and --tail.")
            _print_error(*_served_error(address, str(run), rank, attempt))
            return
        _print_served(address, str(run), rank, attempt, tail, follows=follow)
        return
    if follow or tail is not None:
        raise click.UsageError("--follow and --tail are for a job of a service: set --server.")
    from distrain.runs.logs import find_logs

    paths = RunPaths(run)
    logs = find_logs(paths, attempt, rank)
    if first_error:
        from distrain.runs.logs import first_error as find_first_error, ranks_without_output

        error = find_first_error(logs)
        silent = ranks_without_output(logs, error.log.attempt) if error else []
        _print_error(error, _account(paths), str(error.log.path) if error else "", silent)
        return
    if attempt is None:
        logs = [log for log in logs if log.attempt == logs[-1].attempt]
    for log in logs:
        text = log.text()
        print_answer(attempt=log.attempt, rank=log.rank, path=str(log.path), text=text)
        if len(logs) > 1:
            print_result(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        print_result(text.rstrip("\n"))


def _account(paths: RunPaths) -> dict[str, Any] | None:
    """Return the coordinator's reason why the first failed attempt ended; `None` if none failed.

    Needed because ranks that are killed log no error.
    """
    from distrain.runs.run_file import read_summary

    summary = read_summary(paths) or {}
    ends = [*summary.get("restarts", ()), summary]
    end = next((end for end in ends if end.get("reason")), None)
    return end and {name: end.get(name) for name in ("attempt", "reason", "message")}


def _print_error(
    error: "LoggedError | None",
    account: Mapping[str, Any] | None,
    path: str,
    silent: Sequence[int] = (),
) -> None:
    """Print the first error of a run's ranks, in the log at `path`.

    The coordinator's `account` of the attempt's end is printed if no rank logged an error, or only
    errors about lost peers; then the `silent` ranks, which logged no error, are named, too.
    """
    of_peers = error is not None and error.of_peers
    account = account if error is None or of_peers else None
    if json_wanted():
        document = None
        if error is not None:
            document = {"attempt": error.log.attempt, "rank": error.log.rank, "path": path}
            document |= {"line": error.line, "text": error.text, "of_peers": error.of_peers}
            document |= {"ranks_without_output": list(silent)}
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
    print_result(f"==> {where}: {path}, line {error.line} <==", bold=True)
    print_result(error.text)


def _of_lost_peers(silent: Sequence[int]) -> str:
    lost = "No rank logged a cause, only that it lost another rank."
    if not silent:
        return lost
    ranks = f"Rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
    return f"{lost} {ranks} logged nothing: killed from outside, or by Linux when out of memory."


def _print_served(
    server: str,
    word: str,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    *,
    follows: bool,
) -> None:
    """Print the log of a rank of a service's job; without `rank`, the logs of all ranks.

    With `follows`, print one log until the job ends, by default that of rank 0. `attempt` is by
    default the job's last one.
    """
    with service_at(server, None if follows else READ_S) as client:
        job = client.find(word)
        if_interrupted(f"job {job.id} continues without this command")
        may_be_missing = (rank or 0) >= job.num_ranks or (attempt is not None and not follows)
        if may_be_missing:
            _logs_there(client, job, rank, attempt)  # an earlier attempt may have had more ranks
        several = rank is None and not follows and job.num_ranks > 1
        for one in range(job.num_ranks) if several else [rank or 0]:
            if several:
                print_result(f"==> attempt {attempt or job.attempt}, rank {one} <==", bold=True)
            pieces = client.logs(job.id, rank=one, attempt=attempt, tail=tail, follow=follows)
            if not json_wanted():
                for line in lines_of(pieces):
                    print_result(line)
            else:
                _print_served_json(job, one, attempt, pieces, follows)


def _print_served_json(
    job: "Job", rank: int, attempt: int | None, pieces: Iterable[bytes], follows: bool
) -> None:
    """Print a document with the log; with `follows`, one for each new line."""
    place = {"version": VERSION, "job_id": job.id, "rank": rank}
    if follows:
        for line in lines_of(pieces):
            print_json({**place, "text": line})
        return
    text = b"".join(pieces).decode("utf-8", "replace")
    print_json({**place, "attempt": attempt or job.attempt, "text": text})


def _served_error(
    server: str, word: str, rank: int | None, attempt: int | None
) -> "tuple[LoggedError | None, Mapping[str, Any] | None, str, list[int]]":
    """Return a job's first error, the service's account, the log's name and silent ranks."""
    from distrain.runs.logs import first_error, ranks_without_output

    error = None
    with service_at(server, READ_S) as client, TemporaryDirectory() as folder:
        job = client.find(word)
        if_interrupted(f"job {job.id} continues without this command")
        paths, logs = RunPaths(Path(folder)), list["LogOfRank"]()
        for number, ranks in _logs_there(client, job, rank, attempt).items():
            logs += [_fetched(client, job.id, paths, number, one) for one in ranks]
            error = first_error(logs)
            if error is not None and not error.of_peers:
                break  # later attempts cannot have the first error
        account = {"attempt": job.attempt, "reason": job.reason, "message": job.message}
        name = error.log.path.relative_to(paths.root).as_posix() if error else ""
        silent = ranks_without_output(logs, error.log.attempt) if error else []
    return error, account if job.reason else None, name, silent


def _logs_there(
    client: "Client", job: "Job", rank: int | None, attempt: int | None
) -> dict[int, list[int]]:
    """Return the ranks that have logs, by attempt; only of `rank` or `attempt` if not `None`.

    Raises `InputError` if there are none.
    """
    logs: dict[int, list[int]] = {}
    for file in _files(client, job):
        match = _LOG.fullmatch(file.name)
        if match and attempt in (None, int(match[1])) and rank in (None, int(match[2])):
            logs.setdefault(int(match[1]), []).append(int(match[2]))
    if not logs:
        raise InputError(
            "no rank has printed anything" if rank is attempt is None else "no such log",
            where={"job": job.id, "state": job.state},
            hint=f"See its state: distrain status {job.id}",
        )
    return {number: sorted(logs[number]) for number in sorted(logs)}


def _files(client: "Client", job: "Job") -> "tuple[Artifact, ...]":
    from distrain.client.errors import NotFound

    try:
        return client.artifacts(job.id, below="logs")
    except NotFound:  # the folder is missing: no rank has started
        return ()


def _fetched(
    client: "Client", job_id: str, paths: RunPaths, attempt: int, rank: int
) -> "LogOfRank":
    from distrain.runs.logs import LogOfRank

    path = paths.log(rank, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for piece in client.logs(job_id, rank=rank, attempt=attempt):
            file.write(piece)
    return LogOfRank(attempt, rank, path)


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
