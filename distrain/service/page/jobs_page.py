"""The pages of jobs and of the queue, with what a run directory has of a job."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from re import fullmatch
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import yaml
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from distrain.formatting import UNKNOWN
from distrain.jobs.documents import Job as JobAnswer
from distrain.jobs.spec.load import differences
from distrain.jobs.view import Record, record_from_json
from distrain.runs.attempts import last_lines
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_run_folder
from distrain.service.access.rules import Action, may, visible
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.documents import contacts, job_document
from distrain.service.api.problems import Problem
from distrain.service.api.routes.usage import USAGE_KEYS, UsageKey, used
from distrain.service.decide.admission import in_order
from distrain.service.decide.api_values import HANDING_OVER, QUEUED, STATES
from distrain.service.page.rendering import PageRoute, page, url_with
from distrain.service.store.listing import JobFilter
from distrain.service.values import Job, Phase

MOST_RANKS = 64
MOST_FILES = 200
_READ_BYTES = 2**18
_LOOKED_AT = 20_000
_OF_OTHER_SHAPE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class PhaseShare:
    name: str
    share_pct: float


@dataclass(frozen=True)
class Rank:
    rank: int
    stall_pct: float


def records_of(run_dir: str) -> list[Record]:
    """The last records of a run; none where its files, which the job writes, cannot be read."""
    try:
        with open_run_folder(run_dir) as folder:
            lines = last_lines(folder, _READ_BYTES)
        documents = [json.loads(line) for line in lines]
        of_records = [one for one in documents if one.get("entry", "record") == "record"]
        records = [record_from_json(one) for one in of_records]
        phases(records), ranks(records)  # what they cannot read is no record of ours
        return records
    except (NotInRun, OSError, RecursionError, *_OF_OTHER_SHAPE):
        return []


def phases(records: Sequence[Record]) -> list[PhaseShare]:
    seconds = next((r.seconds for r in reversed(records) if r.seconds), None) or {}
    whole = sum(seconds.values())
    if not whole > 0:
        return []
    shares = [PhaseShare(name, 100 * value / whole) for name, value in seconds.items()]
    return sorted(shares, key=lambda phase: -phase.share_pct)


def ranks(records: Sequence[Record]) -> list[Rank]:
    """The ranks of the last record that lists them; those of large jobs that waited longest."""
    last = next((r for r in reversed(records) if r.split == "train"), None)
    if last is None:
        return []
    found = [Rank(rank, float(pct)) for rank, pct in enumerate(last.stall_pct)]
    if not found and last.stall_summary is not None:
        found = [Rank(int(rank), float(pct)) for rank, pct in last.stall_summary["worst"]]
    return found[:MOST_RANKS]


@dataclass(frozen=True)
class File:
    path: str
    size_bytes: int


def files_of(run_dir: str) -> list[File]:
    """The files of a run that people look for first, then its logs, at most `MOST_FILES`."""
    try:
        with open_run_folder(run_dir) as folder:
            found = [File(f.name, f.size_bytes) for f in islice(folder.files(), _LOOKED_AT)]
    except (NotInRun, OSError):
        return []
    shown = [file for file in found if not any(p.startswith(".") for p in file.path.split("/"))]
    first = [file for file in shown if "/" not in file.path]
    model = [file for file in shown if file.path.startswith("model/") and file.path.count("/") == 1]
    logs = [file for file in shown if fullmatch(r"logs/[^/]+/[^/]+\.log", file.path)]
    return [*first, *model, *logs][:MOST_FILES]


router = APIRouter(include_in_schema=False, route_class=PageRoute)

_WAITING = (QUEUED, HANDING_OVER, "pending")
_PAGE_JOBS = 100
_MOST_COMPARED = 8


@router.get("/")
def home() -> RedirectResponse:
    return RedirectResponse("/jobs", 303)


@router.get("/jobs")
def jobs(
    call: Call,
    text: str = "",
    state: str = "",
    project: str = "",
    owner: str = "",
    tag: str = "",
    before: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
) -> HTMLResponse:
    call.require(Action.SEE_JOB)
    key, sign, value = tag.partition("=")
    wanted = JobFilter(
        project=project or None,
        owner=owner or None,
        states=(state,) if state else (),
        tags=((key, value),) if sign else (),
        text=text,
        visible=visible(call.caller),
    )
    found = call.store.jobs(wanted, limit=_PAGE_JOBS, before_seq=before)
    caller = call.caller
    projects = [p.name for p in call.store.projects()] if caller.is_admin else caller.roles
    older = url_with(call.request, {"before": found[-1].seq}) if len(found) == _PAGE_JOBS else None
    asked = {"text": text, "state": state, "project": project, "owner": owner, "tag": tag}
    return page(
        call.request,
        "jobs.html",
        call.caller,
        jobs=_documents(call, found),
        states=STATES,
        projects=sorted(projects),
        asked=asked,
        next_url=older,
    )


@router.get("/compare")
def compare(chosen: Annotated[tuple[str, ...], Query(alias="job")] = ()) -> RedirectResponse:
    """The page of the first of some jobs, with the others beside it."""
    first, *others = chosen or ("",)
    query = f"?{urlencode([('with', other) for other in others])}#curves" if others else ""
    return RedirectResponse(f"/jobs/{quote(first, safe='')}{query}".rstrip("/"), 303)


@router.get("/queue")
def queue(call: Call) -> HTMLResponse:
    """Show the waiting jobs of each cluster: those handed over, then the queue by its shares."""
    call.require(Action.SEE_JOB)
    queues = []
    for cluster in call.service.settings.clusters:
        jobs = call.store.alive(cluster)
        active = [job for job in jobs if job.phase is not Phase.QUEUED]
        queued = [job for job in jobs if job.phase is Phase.QUEUED]
        active.sort(key=lambda job: (-job.priority, job.seq))
        seen = [
            job
            for job in (*active, *in_order(queued, active))
            if may(call.caller, Action.SEE_JOB, job.project, job.owner)
        ]
        queues.append((cluster, [j for j in _documents(call, seen) if j.state in _WAITING]))
    return page(call.request, "queue.html", call.caller, queues=queues)


@router.get("/usage")
def usage(
    call: Call,
    since: date | None = None,
    until: date | None = None,
    by: Annotated[tuple[UsageKey, ...], Query()] = ("project", "user"),
    tag: str = "",
) -> HTMLResponse:
    """The hours that ranks and GPUs were held; of a month, unless told otherwise."""
    found = used(call, since, until, by, tag or None)
    columns = [*dict.fromkeys(by), *(["tag"] if tag else [])]
    asked = [("since", str(found.since)), ("until", str(found.until))]
    asked += [*(("by", key) for key in by), *([("tag", tag)] if tag else [])]
    return page(
        call.request,
        "usage.html",
        call.caller,
        usage=found,
        columns=columns,
        keys=(*USAGE_KEYS, "cluster"),
        tag=tag,
        table=urlencode(asked),
    )


@router.get("/jobs/{job_id}")
def job(
    call: Call, job_id: str, others: Annotated[tuple[str, ...], Query(alias="with")] = ()
) -> HTMLResponse:
    """A job; `with` names others, whose curves and specs are laid beside its own."""
    call.require(Action.SEE_JOB)
    store, found = call.store, call.job(job_id)
    spec = store.spec(found.id)
    problem, specs = "", {found.id: spec}
    for other in " ".join(others).replace(",", " ").split()[:_MOST_COMPARED]:
        try:
            there = call.job(other)
            specs[there.id] = store.spec(there.id)
        except Problem as error:
            problem = error.detail
    records = records_of(found.run_dir)
    return page(
        call.request,
        "job.html",
        call.caller,
        job=_documents(call, [found])[0],
        is_final=found.phase is Phase.FINAL,
        may={
            "cancel": may(call.caller, Action.CANCEL_JOB, found.project, found.owner),
            "submit": may(call.caller, Action.CHANGE_JOB, found.project, found.owner),
        },
        has_records=bool(records),
        phases=phases(records),
        ranks=ranks(records),
        attempts=store.attempts(found.id),
        artifacts=files_of(found.run_dir),
        spec_yaml=yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True),
        compared=list(specs),
        problem=problem,
        differences=changed_fields(list(specs.values())),
    )


def _documents(call: ApiCall, found: Sequence[Job]) -> list[JobAnswer]:
    heard_s, now_s = contacts(call.store), call.service.now_s()
    return [job_document(job, now_s, heard_s.get(job.cluster)) for job in found]


@dataclass(frozen=True)
class Difference:
    """A field that differs, and its value in each spec; `-` where one lacks it."""

    field: str
    values: tuple[str, ...]


def changed_fields(specs: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The fields that differ, by their dotted names.

    >>> changed_fields([{"train": {"epochs": 1, "seed": 0}}, {"train": {"epochs": 2, "seed": 0}}])
    [Difference(field='train.epochs', values=('1', '2'))]
    """
    return [
        Difference(field, tuple(UNKNOWN if one is None else json.dumps(one) for one in values))
        for field, values in differences(specs).items()
    ]
