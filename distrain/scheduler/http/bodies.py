"""The bodies of requests, and the JSON of answers and refusals; no I/O."""

import json
from functools import partial
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from distrain.jobs.api_answers import Problem
from distrain.jobs.requests import PlainBody
from distrain.jobs.status import finite


class Body(PlainBody):
    """A request's body. Unknown keys are ignored, since a later version may send more."""

    model_config = ConfigDict(extra="ignore")


class PreflightOrder(Body):
    """A request to have a worker check the data of a job spec."""

    spec: dict[str, Any]
    owner: Annotated[str, Field(max_length=200)] = Field(
        "", description="The user who requests the check. Checks of one user run one after another."
    )


def dumps(document: Any) -> str:
    r"""Return compact JSON; NaN and infinite numbers become null, halves of surrogate pairs `?`.

    >>> dumps({"loss": float("nan"), "message": "a\udcff"})
    '{"loss":null,"message":"a?"}'
    """
    try:
        text = _DUMP(document)
    except ValueError:  # JSON has no NaN
        text = _DUMP(finite(document))
    return text.encode(errors="replace").decode()  # messages of ranks may have any characters


_DUMP = partial(json.dumps, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


class Refusal(Exception):
    """Raised for a request that is not carried out.

    `status` is the HTTP status, and `document` the `Problem` of the answer as JSON values, with the
    further keys `more`.
    """

    def __init__(self, status: int, code: str, detail: str, hint: str, **more: Any):
        super().__init__(detail)
        self.status = status
        problem = Problem(
            type=f"urn:distrain:problem:{code}", status=status, detail=detail, code=code, hint=hint
        )
        self.document = {**problem.model_dump(exclude_unset=True), **more}
