"""What `distrain logs` prints of a job of a service."""

import codecs
from typing import TYPE_CHECKING

from distrain.cli.interrupts import if_interrupted
from distrain.cli.jobs import service_at
from distrain.cli.output import VERSION, print_json, print_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distrain.client import Job


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
    with service_at(server) as client:
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
