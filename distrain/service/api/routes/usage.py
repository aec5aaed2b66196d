"""`/v1/usage`: rank-hours and GPU-hours by day, project, user, cluster and tag."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from distrain.jobs.api_answers import Answer
from distrain.service.access.rules import Action, visible
from distrain.service.api.bodies import ProjectName
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.openapi import answers
from distrain.service.api.problems import Problem
from distrain.service.store.listing import JobFilter, Worked

router = APIRouter(tags=["projects"])

_MOST_DAYS = 400
_HOUR_S = 3600.0
UsageKey = Literal["day", "project", "user", "cluster"]
USAGE_KEYS: tuple[UsageKey, ...] = ("day", "project", "user")


class UsageRow(Answer):
    """The hours of ranks and GPUs for one combination of keys, such as a day and a project.

    Keys that were not requested are null.
    """

    day: date | None = Field(None, description="A day in UTC.")
    project: str | None = None
    user: str | None = None
    cluster: str | None = None
    tag: str | None = Field(
        None, description="The value of the requested tag; empty if a job does not have the tag."
    )
    jobs: int = Field(description="The number of jobs that held ranks.")
    rank_hours: float = Field(
        description="The sum over attempts of the number of ranks times the attempt's hours."
    )
    gpu_hours: float = Field(description="The same sum for ranks with a GPU.")


class Usage(Answer):
    """Usage between two days."""

    since: date
    until: date = Field(description="The last day, inclusive.")
    rows: list[UsageRow]


@dataclass
class _Sum:
    jobs: set[str] = field(default_factory=set)
    rank_s: float = 0.0
    gpu_s: float = 0.0


_CSV: dict[str, Any] = {
    "description": "The hours, newest day first.",
    "content": {"text/csv": {"schema": {"type": "string"}}},
}


@router.get("/v1/usage", responses=answers(others={200: _CSV}), response_model=Usage)
def usage(
    call: Call,
    since: Annotated[
        date | None, Query(description="The first day, in UTC; default: 29 days before `until`.")
    ] = None,
    until: Annotated[
        date | None,
        Query(description="The last day, in UTC, inclusive; at most today, which is the default."),
    ] = None,
    by: Annotated[
        tuple[UsageKey, ...],
        Query(description="A key by which hours are summed; repeat it for several keys."),
    ] = USAGE_KEYS,
    tag: Annotated[
        str | None, Query(description="A tag: its values are one more key of the rows.")
    ] = None,
    project: Annotated[ProjectName | None, Query(description="Only jobs of this project.")] = None,
    form: Annotated[
        Literal["json", "csv"], Query(alias="format", description="The format of the response.")
    ] = "json",
) -> Usage | Response:
    """Return the hours for which jobs held ranks and GPUs, of all jobs that the caller may see.

    The range has at most 400 days.
    """
    found = used(call, since, until, by, tag, project)
    if form == "json":
        return found
    name = f"usage-{found.since}-{found.until}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(as_csv(found, by, tag), media_type="text/csv", headers=headers)


def used(
    call: ApiCall,
    since: date | None = None,
    until: date | None = None,
    by: Sequence[UsageKey] = USAGE_KEYS,
    tag: str | None = None,
    project: str | None = None,
) -> Usage:
    """Return the usage of the jobs that a caller may see: a row for each combination of key values.

    The days are `since` to `until`, inclusive. `until` defaults to today and is at most today;
    `since` defaults to 29 days before it. Raises the problem `bad_request` if they are reversed, or
    cover more than 400 days.
    """
    call.require(Action.SEE_JOB)
    today = datetime.fromtimestamp(call.store.now_s(), UTC).date()
    last = min(until or today, today)
    first = since or date.fromordinal(max(1, last.toordinal() - 29))
    if not 0 <= (last - first).days < _MOST_DAYS:
        raise Problem(
            "bad_request",
            f"{first} to {last} is not a range of 1 to {_MOST_DAYS} days",
            hint="Give since and until as YYYY-MM-DD, since first.",
        )
    wanted = JobFilter(project=project, visible=visible(call.caller))
    worked = call.store.worked(wanted, _begin_s(first), _begin_s(last + timedelta(days=1)))
    return Usage(since=first, until=last, rows=summed(worked, by, tag))


def summed(
    worked: Iterable[Worked], by: Sequence[UsageKey], tag: str | None = None
) -> list[UsageRow]:
    """Return a row for each combination of the keys `by` and `tag` that occurs.

    The newest day comes first; the rows of a day are sorted by their keys.
    """
    sums: dict[tuple[Any, ...], _Sum] = defaultdict(_Sum)
    names = [*dict.fromkeys(by), *(["tag"] if tag else [])]
    for one in worked:
        known = {"project": one.project, "user": one.owner, "cluster": one.cluster}
        known["tag"] = one.tags.get(tag, "") if tag else ""
        for day, seconds in _by_day(one.since_s, one.until_s):
            of = sums[tuple(day if name == "day" else known[name] for name in names)]
            of.jobs.add(one.job_id)
            of.rank_s += seconds * one.num_ranks
            of.gpu_s += seconds * one.gpus
    rows = [
        UsageRow(
            **dict(zip(names, key, strict=True)),
            jobs=len(of.jobs),
            rank_hours=round(of.rank_s / _HOUR_S, 4),
            gpu_hours=round(of.gpu_s / _HOUR_S, 4),
        )
        for key, of in sorted(sums.items(), key=lambda item: [str(part) for part in item[0]])
    ]
    return sorted(rows, key=lambda row: row.day or date.min, reverse=True)


def as_csv(found: Usage, by: Sequence[UsageKey], tag: str | None) -> str:
    """Return the rows as CSV; no text in it starts a spreadsheet formula."""
    names = [*dict.fromkeys(by), *(["tag"] if tag else []), "jobs", "rank_hours", "gpu_hours"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in found.rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([f"'{v}" if str(v).startswith(("=", "+", "-", "@")) else v for v in values])
    return out.getvalue()


def _by_day(since_s: float, until_s: float) -> Iterable[tuple[date, float]]:
    while since_s < until_s:
        day = datetime.fromtimestamp(since_s, UTC).date()
        end_s = min(until_s, _begin_s(day + timedelta(days=1)))
        yield day, end_s - since_s
        since_s = end_s


def _begin_s(day: date) -> float:
    return datetime.combine(day, time(), UTC).timestamp()
