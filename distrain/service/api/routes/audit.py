"""`/v1/audit`: the changes that users made; for admins."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from distrain.jobs.api_answers import Answer, Time, utc
from distrain.service.access.rules import Action
from distrain.service.api.bodies import answer_of
from distrain.service.api.dependencies import Call
from distrain.service.api.openapi import answers

router = APIRouter(tags=["people"])


class AuditRow(Answer):
    """A change that a user made."""

    id: int
    at: Time
    user: str = Field(description="The caller; `os:USER` for a command on the service's machine.")
    token_id: str | None = Field(description="The caller's token; null without one.")
    action: str = Field(description="The operation, such as `submit` or `cancel`.")
    target: str = Field(description="The job, project or token.")
    details: dict[str, Any]


class AuditPage(Answer):
    """Audit rows, newest first."""

    rows: list[AuditRow]
    next_before: int | None = Field(
        description="The `before` of the next page; null on the last page."
    )


@router.get("/v1/audit", responses=answers())
def list_audit(
    call: Call,
    before: Annotated[
        int | None, Query(ge=1, lt=2**63, description="The `next_before` of the previous page.")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=200, description="The maximum number of rows in a page.")
    ] = 100,
) -> AuditPage:
    """List changes that users made, newest first; for admins."""
    call.allow(Action.SEE_AUDIT)
    found = call.store.audit_rows(before, limit + 1)
    rows = [answer_of(AuditRow, row, at=utc(row.at_s)) for row in found[:limit]]
    return AuditPage(rows=rows, next_before=rows[-1].id if len(found) > limit else None)
