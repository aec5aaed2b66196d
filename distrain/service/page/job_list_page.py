"""The pages that list jobs by filters, and that compare several jobs."""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse

from distrain.jobs.figures import shown_on
from distrain.jobs.states import FINAL_STATES
from distrain.service.access.rules import Action, visible
from distrain.service.api.bodies import documents
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.problems import Problem
from distrain.service.decisions.api_values import STATES
from distrain.service.page.comparison import hyperparameters, metric_rows, setting_rows
from distrain.service.page.rendering import PageRoute, labels, lasted_s, own_url, page, url_with
from distrain.service.store.listing import JobFilter

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ShortText = Annotated[str, Query(max_length=128)]
_PAGE_JOBS = 100
_MOST_COMPARED = 8
_OF_VALIDATION = "of the saved model; of a job that trains, its last validation"


@dataclass(frozen=True)
class StateLink:
    """A link to the jobs in a state; "" is any state. `count` is `None` for final states and ""."""

    state: str
    count: int | None
    url: str


@router.get("/")
def home() -> RedirectResponse:
    return RedirectResponse("/jobs", 303)


@router.get("/jobs")
def jobs(
    call: Call,
    text: ShortText = "",
    state: ShortText = "",
    project: ShortText = "",
    owner: ShortText = "",
    tag: Annotated[str, Query(max_length=400)] = "",
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
    found = call.store.jobs(wanted, limit=_PAGE_JOBS + 1, before_seq=before)
    has_more, found = len(found) > _PAGE_JOBS, found[:_PAGE_JOBS]
    caller = call.caller
    projects = [p.name for p in call.store.projects()] if caller.is_admin else caller.roles
    specs = call.store.specs([job.id for job in found])
    settings = hyperparameters([specs.get(job.id, {}) for job in found])
    has_owners = len({(job.owner, job.project) for job in found}) > 1
    has_auc = any("valid_auc" in job.progress for job in found)
    older = url_with(call.request, {"before": found[-1].seq}) if has_more else None
    return page(
        call.request,
        "jobs.html",
        call.caller,
        jobs=documents(call.service, found),
        specs=specs,
        settings=settings,
        figures=(figures := shown_on("jobs")),
        has_owners=has_owners,
        headings=[
            *(("Name", "", ""), ("State", "", ""), ("Progress", "mid", "")),
            ("Valid. AUC" if has_auc else "Validation", "n", _OF_VALIDATION),
            *((figure.title, "n wide", "") for figure in figures),
            *(
                (heading(row.field), "n wide fourth" if number == 3 else "n wide", row.field)
                for number, row in enumerate(settings)
            ),
            *(("Model", "wide", ""), ("Data", "wide", ""), ("Ranks", "n wide", "")),
            *([("Owner", "wide", "")] if has_owners else []),
            *(("Created", "n mid", ""), ("Duration", "n wide", "from start to end")),
        ],
        chips=_state_links(call, wanted, state),
        projects=sorted(projects),
        asked={"text": text, "state": state, "project": project, "owner": owner, "tag": tag},
        next_url=older,
        here_url=own_url(call.request, call.service.settings.listen.public_url),
    )


def _state_links(call: ApiCall, wanted: JobFilter, chosen: str) -> list[StateLink]:
    """Return links to all jobs, and to each state that is final, chosen, or has jobs.

    Only states that are not final have a number of jobs: jobs that have ended are not counted.
    """
    live = [name for name in STATES if name not in FINAL_STATES]
    counts = call.store.live_counts(replace(wanted, states=()), live)
    shown = [s for s in STATES if counts.get(s) or s in FINAL_STATES or s == chosen]
    return [
        StateLink(name, counts.get(name), url_with(call.request, {"state": name, "before": ""}))
        for name in ("", *shown)
    ]


def heading(field: str) -> str:
    """Return a short heading for a setting: its last word, or for a kind its last two words.

    >>> heading("train.epochs"), heading("train.optimizer.kind")
    ('epochs', 'optimizer.kind')
    """
    words = field.split(".")
    return ".".join(words[-2 if words[-1] == "kind" else -1 :])


@router.get("/compare")
def compare(
    call: Call, chosen: Annotated[tuple[str, ...], Query(alias="job")] = ()
) -> HTMLResponse:
    """Show metrics, curves and differing settings of up to 8 jobs side by side."""
    call.require(Action.SEE_JOB)
    found, problems = [], []
    for job_id in dict.fromkeys(chosen[:_MOST_COMPARED]):
        try:
            found.append(call.job(job_id))
        except Problem as error:
            problems.append(error.detail)
    jobs = documents(call.service, found)
    names = labels(jobs)
    specs = call.store.specs([job.id for job in found])
    return page(
        call.request,
        "compare.html",
        call.caller,
        jobs=jobs,
        labels=names,
        named=[{"id": job.id, "name": name} for job, name in zip(jobs, names, strict=True)],
        metrics=metric_rows(jobs, [lasted_s(job) for job in jobs]),
        differences=setting_rows([specs.get(job.id, {}) for job in found]),
        problems=problems,
    )
