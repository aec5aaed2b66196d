"""Bodies of requests, and the conversion of rows to the answers of `distrain.jobs.api_answers`.

Requests with unknown keys are rejected. Answers may get new fields; times are RFC 3339 in UTC.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from distrain.jobs.api_answers import (
    FIGURES,
    Answer,
    CancelOptions,
    Job as JobAnswer,
    Priority,
    utc,
)
from distrain.jobs.requests import PlainBody
from distrain.jobs.run_paths import JOB_ID
from distrain.jobs.status import figures_in, restart_in
from distrain.service.api.dependencies import ApiParts
from distrain.service.decisions.api_values import shown
from distrain.service.settings import NAME_PATTERN
from distrain.service.values import Job, Phase


class Request(PlainBody):
    """A request's JSON body; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid")


Shown = TypeVar("Shown", bound=Answer)


def answer_of(kind: type[Shown], row: object, **values: Any) -> Shown:
    """Return an answer of the class `kind` whose fields are `values` and attributes of `row`.

    A field that is not in `values` is the row's attribute of the same name; a time `NAME_at` is
    converted from the row's `NAME_at_s`.
    """
    for name in kind.model_fields.keys() - values.keys():
        is_time = name.endswith("_at")
        values[name] = utc(getattr(row, f"{name}_s")) if is_time else getattr(row, name)
    return kind(**values)


ProjectName = Annotated[str, Field(pattern=NAME_PATTERN)]

UserName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$")]
"""A user; the pattern keeps names fit for paths, headers and terminals."""

_EXAMPLE: JsonDict = {
    "spec": {"data": {"train": ["/data/clicks/day_*"]}, "model": {"kind": "dlrm"}},
    "project": "ads",
    "tags": {"team": "clicks"},
}


class JobRequest(Request):
    """A job to submit."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    spec: dict[str, Any] = Field(description="The job spec. All paths in it must be absolute.")
    project: ProjectName = Field("default", description="The project to which the job belongs.")
    cluster: ProjectName | None = Field(
        None, description="Required if the project may use several clusters; null: its only one."
    )
    priority: Priority | None = Field(
        None, description="Higher priorities run first; null: `queue.priority` of the spec."
    )
    tags: dict[str, str] = Field(
        {}, description="Added to the spec's tags; equal keys override them."
    )


class JobChangeRequest(Request):
    """Changes of a job."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 5}]})

    priority: Priority | None = Field(
        None,
        description="The new priority; null leaves it unchanged. It is rejected if the job has "
        "started or ended.",
    )
    tags: dict[str, str | None] | None = Field(
        None,
        description="New values of tags; null removes a tag. Other tags are kept; null instead of "
        "an object keeps all.",
    )


class CancelRequest(Request, CancelOptions):
    """Options for cancelling a job."""


JobId = Annotated[str, Field(pattern=f"^{JOB_ID}$")]
Settings = Annotated[
    dict[str, Any],
    Field(description="New values of spec fields, by dotted path such as `train.epochs`."),
]


class CloneRequest(Request):
    """A new job with the spec of an existing job."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "clicks-2", "set": {"train.epochs": 3}}]}
    )

    id: JobId = Field(
        description="The id of the new job. If the request is repeated with the same id, it "
        "returns the same job."
    )
    set: Settings = Field({})


class ResumeRequest(Request):
    """How an ended job is resumed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"resumes": 0, "set": {"train.epochs": 3}}]}
    )

    resumes: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        description="The job's `resumes` as last read. It prevents a repeated request from "
        "resuming the job twice."
    )
    set: Settings = Field({})


def documents(service: ApiParts, jobs: Sequence[Job]) -> list[JobAnswer]:
    """Return the API's answers that describe jobs, as they are now."""
    now_s, configured = service.now_s(), service.settings.clusters
    is_any_there = any(job.phase is Phase.HANDED_OVER for job in jobs)
    heard = service.store.clusters() if is_any_there else ()
    heard_s = {row.name: row.observed_at_s for row in heard}
    return [
        _document(job, shown(job, now_s, contact_s=heard_s.get(job.cluster), clusters=configured))
        for job in jobs
    ]


def _document(job: Job, seen: dict[str, Any]) -> JobAnswer:
    figures = dict.fromkeys(FIGURES) | figures_in(job.progress)
    own: dict[str, Any] = {"service": None, "recorded": job.phase is Phase.FINAL}
    own["last_restart"] = restart_in(job.progress.get("last_restart"))
    return answer_of(JobAnswer, job, **seen, **figures, **own)
