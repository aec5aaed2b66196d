"""Bodies of requests, of which unknown keys are left out, and JSON of answers. Pure."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrain.jobs.status import finite

MOST_PRIORITY = 2**31 - 1

Word = Annotated[str, Field(min_length=1, max_length=200)]
Priority = Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY, strict=True)]


class Body(BaseModel):
    """A body; a later version may send more keys."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ServiceOrder(Body):
    service: Word  # its id
    first_attempt: Annotated[int, Field(ge=1, strict=True)]  # of the submission that is meant


class PutOrder(ServiceOrder):
    epoch: Word = Field(description="The scheduler's epoch that this was decided for.")
    spec: dict[str, Any] = Field(description="The job spec, with absolute paths.")
    run_dir: Annotated[str, Field(max_length=4096, pattern=r"^(/|[a-z][a-z0-9+.-]*://)")] = Field(
        description="An absolute path, or a URL."
    )
    priority: Priority | None = Field(None, description="Null takes the spec's.")


class CancelOrder(ServiceOrder):
    why: Annotated[str, Field(max_length=1000)] = ""
    grace_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = Field(
        None, description="What its ranks get to save a checkpoint; null: a few seconds."
    )


class PriorityOrder(ServiceOrder):
    priority: Priority


class PreflightOrder(Body):
    spec: dict[str, Any]
    owner: Annotated[str, Field(max_length=200)] = Field(
        "", description="Who asks: the checks of one run one after another."
    )


def explain(error: ValidationError) -> str:
    """The mistakes of a body, a line for each.

    >>> try:
    ...     PriorityOrder.model_validate({"service": "s", "first_attempt": 0, "priority": "high"})
    ... except ValidationError as error:
    ...     print(explain(error))
    first_attempt: Input should be greater than or equal to 1
    priority: Input should be a valid integer
    """
    lines = []
    for mistake in error.errors(include_input=False, include_url=False, include_context=False):
        place = ".".join(map(str, mistake["loc"]))
        lines.append(f"{place}: {mistake['msg']}" if place else mistake["msg"])
    return "\n".join(lines)


def dumps(document: Any) -> str:
    """JSON without white space; what is not finite becomes null."""
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no NaN
        return json.dumps(finite(document), allow_nan=False, separators=(",", ":"))


class Refusal(Exception):
    """A request that is not carried out: HTTP's status, a word for programs, and a text for people.

    `more` are other keys of the answer.
    """

    def __init__(self, status: int, code: str, error: str, hint: str, **more: Any):
        super().__init__(error)
        self.status = status
        self.document = {"code": code, "error": error, "hint": hint, **more}
