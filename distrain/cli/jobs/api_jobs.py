"""Implements the parts of job commands that are the same for a service and a scheduler."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import click

from distrain.cli.jobs.status_lines import job_lines
from distrain.cli.output import print_remark
from distrain.client.client import Client
from distrain.jobs.api_answers import Job


class ApiJobs:
    """The job commands on the API of a service or of a scheduler."""

    address: str
    client: Client

    def list_jobs(
        self, states: Sequence[str], limit: int, filters: Mapping[str, Any]
    ) -> tuple[list[Job], list[dict[str, Any]], bool]:
        """Return up to `limit` jobs, the newest first; their JSON; and whether options filter them.

        `states` has the values of `--state`, and `filters` those of `--project`, `--owner` and
        `--tag` by name: `project`, `owner` and `tags`, which must be present. The last result is
        False if all of them are empty.
        """
        wanted = {**filters, "tags": parse_tags(filters["tags"])}
        pages = self.client.jobs(**wanted, states=states, page_jobs=min(limit, 200))
        jobs = list(islice(pages, limit))
        return jobs, [job_json(job) for job in jobs], bool(states or any(wanted.values()))

    def find(self, word: str) -> Job:
        """Return the job whose id is `word`, or the only one whose id begins or ends with it.

        Raises `NotFound` if there is none, and `InputError` if there are several.
        """
        return self.client.find(word)

    def status(self, word: str) -> tuple[dict[str, Any], list[str]]:
        """Return one job as JSON, and as lines for people.

        `word` is its id, or the id's beginning or end.
        """
        job = self.find(word)
        return {"job": job_json(job)}, job_lines(job)

    def cancel(self, found: Job, why: str) -> dict[str, Any]:
        """Cancel a job unless it has ended; return its `state` and its JSON as `job`.

        `why` is the reason that the job shows.
        """
        job = found if found.is_final else self.client.cancel(found.id, why=why)
        return {"state": job.state, "job": job_json(job)}


class ChangedLines:
    """Prints lines about a job's state, each unless it is empty or equals the last one."""

    def __init__(self) -> None:
        self._last = ""

    def print(self, line: str) -> None:
        if line not in ("", self._last):
            print_remark(line)
            self._last = line


def job_json(job: Job) -> dict[str, Any]:
    """Return the API's document of a job, with its id also as `job_id`."""
    return {"job_id": job.id, **job.document}


def parse_tags(words: Sequence[str]) -> dict[str, str]:
    """Return `NAME=VALUE` words as a dict; raise `click.UsageError` for any other word."""
    return dict(pair(word, "--tag", "NAME=VALUE") for word in words)


def pair(word: str, option: str, form: str) -> tuple[str, str]:
    """Split a word at its first `=`; raise `click.UsageError` if it has no name or no `=`.

    The error names `option` and the expected form, such as `NAME=VALUE`.
    """
    name, sign, value = word.partition("=")
    if not (name and sign):
        raise click.UsageError(f"{option} {word}: write {form}.")
    return name, value
