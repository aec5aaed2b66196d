"""One job: its state, files and settings, and a form that submits it again with changes.

Curves, times and logs are drawn by the page's scripts from the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from re import fullmatch
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from distrain.jobs.run_paths import new_job_id
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_yaml
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_run_folder
from distrain.service.access.policy import Mistake
from distrain.service.access.rules import Action, may
from distrain.service.api.dependencies import ApiCall, Call, Counted
from distrain.service.api.documents import JobRequest
from distrain.service.api.problems import Problem
from distrain.service.api.routes.submitting import put_job
from distrain.service.api.submission import Wanted, bad_spec, request_sha256
from distrain.service.page.job_list_page import job_documents
from distrain.service.page.rendering import PageRoute, page
from distrain.service.values import Job, Phase

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_FILES = 200
_LISTED = 20_000


@dataclass(frozen=True)
class File:
    path: str
    size_bytes: int


def files_of(run_dir: str) -> list[File]:
    """Return at most `MOST_FILES` files of a run: those at its top, its model, then its logs."""
    try:
        with open_run_folder(run_dir) as folder:
            found = [File(f.name, f.size_bytes) for f in islice(folder.files(), _LISTED)]
    except (NotInRun, OSError):
        return []
    shown = [file for file in found if not any(p.startswith(".") for p in file.path.split("/"))]
    first = [file for file in shown if "/" not in file.path]
    model = [file for file in shown if file.path.startswith("model/") and file.path.count("/") == 1]
    logs = [file for file in shown if fullmatch(r"logs/[^/]+/[^/]+\.log", file.path)]
    return [*first, *model, *logs][:MOST_FILES]


@router.get("/jobs/{job_id}")
def job(call: Call, job_id: str) -> HTMLResponse:
    call.require(Action.SEE_JOB)
    found = call.job(job_id)
    spec = call.store.spec(found.id)
    return page(
        call.request,
        "job.html",
        call.caller,
        job=job_documents(call, [found])[0],
        is_final=found.phase is Phase.FINAL,
        may={
            "cancel": may(call.caller, Action.CANCEL_JOB, found.project, found.owner),
            "submit": may(call.caller, Action.CHANGE_JOB, found.project, found.owner),
        },
        attempts=call.store.attempts(found.id),
        files=files_of(found.run_dir),
        short_yaml=_yaml(without_defaults(spec)),
        spec_yaml=_yaml(spec),
    )


@router.get("/jobs/{job_id}/edit")
def edit(call: Call, job_id: str) -> HTMLResponse:
    """Show a job's settings as text to change and submit."""
    call.require(Action.SUBMIT)
    found = call.job(job_id)
    text = _yaml(without_defaults(call.store.spec(found.id)))
    return _form(call, found, text, new_job_id(found.name))


@router.post("/jobs/{job_id}/edit", dependencies=[Counted])
def submit_again(
    call: Call,
    job_id: str,
    spec: Annotated[str, Form()],
    new_id: Annotated[str, Form()],
) -> Response:
    """Submit a new job with the changed settings; the form comes back with what is wrong."""
    call.require(Action.SUBMIT)
    parent = call.job(job_id)
    try:
        body = _request(spec, parent)
        sha256 = request_sha256(call, body)
        place = (body.project, body.cluster, body.spec)
        put_job(call, Wanted(new_id, *place, None, {}, "/spec", parent.id, sha256))
    except Problem as problem:
        return _form(call, parent, spec, new_id, problem)
    return RedirectResponse(f"/jobs/{new_id}", 303)


def _request(text: str, parent: Job) -> JobRequest:
    try:
        document = parse_yaml(text)
        return JobRequest(spec=document, project=parent.project, cluster=parent.cluster)
    except ValidationError as error:
        mistakes = [Mistake("/spec", mistake["msg"]) for mistake in error.errors()]
        raise bad_spec(mistakes) from None
    except ValueError as error:
        raise bad_spec([Mistake("/spec", str(error))]) from None


def _form(
    call: ApiCall, parent: Job, text: str, new_id: str, problem: Problem | None = None
) -> HTMLResponse:
    return page(
        call.request,
        "edit.html",
        call.caller,
        problem.status if problem else 200,
        job=parent,
        text=text,
        new_id=new_id,
        problem=problem,
    )


def without_defaults(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that differ from the defaults; all of a spec of another version."""
    try:
        short = JobSpec.model_validate(spec).model_dump(mode="json", exclude_defaults=True)
    except ValidationError:
        return spec
    return _with_kinds(short, spec)


def _with_kinds(short: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Add each section's `kind`, on which its other defaults depend."""
    kind = {"kind": spec["kind"]} if "kind" in spec else {}
    return kind | {
        name: _with_kinds(value, spec[name]) if isinstance(value, Mapping) else value
        for name, value in short.items()
    }


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
