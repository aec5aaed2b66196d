"""What `distrain logs` prints of a job of a service."""

import codecs
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs import READ_S, service_at
from distrain.cli.output import VERSION, print_json, print_result
from distrain.errors import InputError
from distrain.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from distrain.client import Artifact, Client, Job
    from distrain.runs import LoggedError, LogOfRank

_LOG = re.compile(r"logs/attempt-(\d+)/rank-(\d+)\.log")


def print_logs(
    server: str,
    word: str,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    *,
    follows: bool,
    as_json: bool,
) -> None:
    """Print the logs of one rank, or of all; with `follows` that of one, to its end."""
    with service_at(server, None if follows else READ_S) as client:
        job = client.find(word)
        if_interrupted(f"job {job.id} goes on without this command")
        several = rank is None and not follows and job.num_ranks > 1
        for one in range(job.num_ranks) if several else [rank or 0]:
            if several and not as_json:
                print_result(f"==> attempt {attempt or job.attempt}, rank {one} <==", bold=True)
            pieces = client.logs(job.id, rank=one, attempt=attempt, tail=tail, follow=follows)
            if not as_json:
                for line in lines_of(pieces):
                    print_result(line)
            else:
                _print_json(job, one, attempt, pieces, follows)


def _print_json(
    job: "Job", rank: int, attempt: int | None, pieces: "Iterable[bytes]", follows: bool
) -> None:
    """A document for the log; with `follows` one for each line, as it comes."""
    place = {"version": VERSION, "job_id": job.id, "rank": rank}
    if follows:
        for line in lines_of(pieces):
            print_json({**place, "text": line})
        return
    text = b"".join(pieces).decode("utf-8", "replace")
    print_json({**place, "attempt": attempt or job.attempt, "text": text})


def error_of_job(
    server: str, word: str, rank: int | None, attempt: int | None
) -> "tuple[LoggedError | None, Mapping[str, Any] | None, str, list[int]]":
    """The first error of a job's ranks, the service's account, the log's name, and silent ranks."""
    from distrain.runs import first_error, silent_ranks

    error = None
    with service_at(server, READ_S) as client, TemporaryDirectory() as folder:
        job = client.find(word)
        if_interrupted(f"job {job.id} goes on without this command")
        paths, logs = RunPaths(Path(folder)), list["LogOfRank"]()
        for number, ranks in _logs_there(client, job, rank, attempt).items():
            logs += [_fetched(client, job.id, paths, number, one) for one in ranks]
            error = first_error(logs)
            if error is not None and not error.of_peers:
                break  # what comes in later attempts is not the first
        account = {"attempt": job.attempt, "reason": job.reason, "message": job.message}
        name = error.log.path.relative_to(paths.root).as_posix() if error else ""
        silent = silent_ranks(logs, error.log.attempt) if error else []
    return error, account if job.reason else None, name, silent


def _logs_there(
    client: "Client", job: "Job", rank: int | None, attempt: int | None
) -> dict[int, list[int]]:
    """By attempt, the ranks that have logs."""
    found: dict[int, list[int]] = {}
    for file in _files(client, job):
        match = _LOG.fullmatch(file.name)
        if match and attempt in (None, int(match[1])) and rank in (None, int(match[2])):
            found.setdefault(int(match[1]), []).append(int(match[2]))
    if not found:
        raise InputError(
            "no rank has printed anything" if rank is attempt is None else "no such log",
            where={"job": job.id, "state": job.state},
            hint=f"What is known of it: distrain status {job.id}",
        )
    return {number: sorted(found[number]) for number in sorted(found)}


def _files(client: "Client", job: "Job") -> "tuple[Artifact, ...]":
    from distrain.client import NotFound

    try:
        return client.artifacts(job.id, below="logs")
    except NotFound:  # the folder: no rank has been started
        return ()


def _fetched(
    client: "Client", job_id: str, paths: RunPaths, attempt: int, rank: int
) -> "LogOfRank":
    from distrain.runs import LogOfRank

    path = paths.log(rank, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for piece in client.logs(job_id, rank=rank, attempt=attempt):
            file.write(piece)
    return LogOfRank(attempt, rank, path)


def lines_of(pieces: "Iterable[bytes]") -> "Iterator[str]":
    """Lines out of bytes that come in any pieces.

    >>> list(lines_of([b"one\\ntw", b"o \\xc3", b"\\xa4\\n", b"\\nrest"]))
    ['one', 'two \u00e4', '', 'rest']
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        yield from lines
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
