"""The page of a job: its state, files and settings, and a form to submit it with changes.

Curves, times and logs are drawn by the page's scripts from the API.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from re import fullmatch
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from distrain.errors import DistrainError
from distrain.formatting import model_step_text
from distrain.jobs.figures import shown_on
from distrain.jobs.reasons import Reason
from distrain.jobs.run_paths import JOB_ID, new_job_id
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml, parse_yaml
from distrain.jobs.spec.short_yaml import default_spec, short_yaml
from distrain.runs.run_folder import FileInRun, NotInRun
from distrain.runs.stored.folder import OpenRunFolder, open_job_folder
from distrain.service.access.policy import Mistake
from distrain.service.access.rules import Action, may
from distrain.service.api.bodies import JobRequest, documents
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.problems import Problem, problem_of
from distrain.service.api.routes.submitting import put_job
from distrain.service.api.submission import bad_spec, request_sha256
from distrain.service.page.comparison import Row, setting_rows
from distrain.service.page.queue_page import start_in_s
from distrain.service.page.rendering import PageRoute, page
from distrain.service.values import Job, Phase

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST_FILES = 200
MOST_FILES_READ = 1000
_MOST_LISTINGS = 50
_SHOWN = r"[^./][^/]*|model/[^./][^/]*|logs/[^./][^/]*/[^./][^/]*\.log"
_NOT_SHOWN = r"(model/[^/]*/|(?!model/|logs/)[^/]*/).*"
_BEHIND = "\U0010ffff"  # after all names in a folder


def files_of(run_dir: str) -> list[FileInRun]:
    """Return at most `MOST_FILES` files of a run: top-level files, then model, then logs.

    Returns [] if the run folder does not exist yet, or cannot be read.
    """
    try:
        with open_job_folder(run_dir) as folder:
            shown = list(islice(_worth_showing(folder), MOST_FILES_READ))
    except (NotInRun, OSError):
        return []
    first = [file for file in shown if "/" not in file.name]
    model = [file for file in shown if file.name.startswith("model/")]
    logs = [file for file in shown if file.name.startswith("logs/")]
    return [*first, *model, *logs][:MOST_FILES]


def _worth_showing(folder: OpenRunFolder) -> Iterator[FileInRun]:
    """Yield the files that the page shows, by name; folders of other files are not listed.

    Each folder that is left out needs a new listing; stops after `_MOST_LISTINGS` of them.
    """
    after = ""
    for _ in range(_MOST_LISTINGS):
        for file in folder.files("", after):
            if fullmatch(_SHOWN, file.name):
                yield file
            elif hidden := fullmatch(_NOT_SHOWN, file.name):
                after = hidden[1] + _BEHIND
                break
        else:
            return


@router.get("/jobs/{job_id}")
def job(call: Call, job_id: str) -> HTMLResponse:
    """Show a job, and how its spec differs from the defaults."""
    call.require(Action.SEE_JOB)
    found = call.job(job_id)
    spec = call.store.spec(found.id)
    [document] = documents(call.service, [found])
    dashboards = {row.name: row.state.get("url") for row in call.store.clusters()}
    return page(
        call.request,
        "job.html",
        call.caller,
        job=document,
        has_parent=found.parent is not None and call.sees(found.parent),
        reason=next((one for one in Reason if one == document.reason), None),
        is_configured=(is_configured := found.cluster in call.service.settings.clusters),
        start_in_s=start_in_s(call, found) if document.why_pending and is_configured else None,
        # The dashboard shows the jobs of all users, and requires its own token.
        scheduler_url=dashboards.get(found.cluster) if call.caller.is_admin else None,
        now_s=call.service.now_s(),
        is_final=found.phase is Phase.FINAL,
        may={
            "cancel": may(call.caller, Action.CANCEL_JOB, found.project, found.owner),
            "submit": may(call.caller, Action.CHANGE_JOB, found.project, found.owner),
        },
        best_metric=_best_metric(spec),
        saved_step=model_step_text(
            document.model_step,
            document.step,
            stopped_early=document.stopped_early_step is not None,
            refit_steps=document.refit_steps,
        ),
        figures=shown_on("card"),
        attempts=call.store.attempts(found.id),
        files=files_of(found.run_dir),
        differences=_differences(spec),
        short_text=short_text(spec),
        whole_text=dump_yaml(dict(spec)),
    )


def _best_metric(spec: Mapping[str, Any]) -> str:
    """Return the metric of a spec of any version that decides which validation is the best."""
    stopping = (spec.get("train") or {}).get("early_stopping") or {}
    return str(stopping.get("metric") or (spec.get("checkpoint") or {}).get("keep_best") or "")


def _differences(spec: Mapping[str, Any]) -> list[Row] | None:
    """Return the settings that differ from the defaults.

    Returns `None` for a spec of another version, whose defaults are unknown.
    """
    try:
        parsed = JobSpec.model_validate(spec)
    except ValidationError:
        return None
    both = (parsed, default_spec(parsed))
    return setting_rows([one.model_dump(mode="json", by_alias=True) for one in both])


@router.get("/jobs/{job_id}/edit")
def edit(call: Call, job_id: str) -> HTMLResponse:
    """Show a job's settings as text to change and submit."""
    call.require(Action.SEE_JOB)
    call.require(Action.SUBMIT)
    found = call.job(job_id)
    spec = call.store.spec(found.id)
    # Tags and priority may have been set or changed outside the spec.
    spec |= {"tags": {**found.tags}, "queue": {**spec.get("queue", {}), "priority": found.priority}}
    return _form(call, found, short_text(spec), new_job_id(found.name))


@router.post("/jobs/{job_id}/edit")
def submit_again(
    call: Call,
    job_id: str,
    spec: Annotated[str, Form()],
    new_id: Annotated[str, Form(pattern=f"^{JOB_ID}$")],  # the name of the run folder
) -> Response:
    """Submit a new job with the changed settings; if they are wrong, show the form again."""
    call.require(Action.SEE_JOB)
    call.require(Action.SUBMIT)
    parent = call.job(job_id)
    try:
        body = _request(spec, parent, call.service.settings.limits.spec_bytes)
        put_job(call, new_id, body, request_sha256(call, body), parent=parent.id)
    except (Problem, DistrainError) as error:
        problem = problem_of(error)
        if problem.code == "id_taken":  # by a submission with other settings
            new_id = new_job_id(parent.name)
        return _form(call, parent, spec, new_id, problem)
    return RedirectResponse(f"/jobs/{new_id}", 303)


def _request(text: str, parent: Job, most_bytes: int) -> JobRequest:
    if len(text.encode(errors="replace")) > most_bytes:  # a form's charset may yield surrogates
        raise bad_spec([Mistake("/spec", f"it has more than {most_bytes} bytes")])
    try:
        document = parse_yaml(text)  # first, since it refuses deep nesting, which takes hours here
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ValueError("YAML aliases are not allowed here: repeat the value")
        # Dates become texts, as users write them; keys become texts, as in JSON.
        document = json.loads(json.dumps(document, default=str))
        return JobRequest(spec=document, project=parent.project, cluster=parent.cluster)
    except ValidationError as error:
        mistakes = [Mistake("/spec", mistake["msg"]) for mistake in error.errors()]
        raise bad_spec(mistakes) from None
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
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


def short_text(spec: Mapping[str, Any]) -> str:
    """Return a spec as YAML without most defaults; a spec of another version is kept complete."""
    try:
        return short_yaml(JobSpec.model_validate(spec))
    except ValidationError:
        return dump_yaml(dict(spec))
