"""`/v1/audit`: who changed what, or was refused; for admins."""

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
    """A change that a user made, or that was rejected."""

    id: int
    at: Time
    user: str
    token_id: str | None
    action: str
    target: str
    outcome: str
    details: dict[str, Any]


class AuditPage(Answer):
    """Audit rows, newest first."""

    rows: list[AuditRow]
    next_before: int | None = Field(description="The `before` of the next page.")


@router.get("/v1/audit", responses=answers())
def list_audit(
    call: Call,
    before: Annotated[
        int | None, Query(ge=1, lt=2**63, description="The `next_before` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> AuditPage:
    """List audit rows, newest first."""
    call.allow(Action.SEE_AUDIT)
    found = call.store.audit_rows(before, limit + 1)
    rows = [answer_of(AuditRow, row, at=utc(row.at_s)) for row in found[:limit]]
    return AuditPage(rows=rows, next_before=rows[-1].id if len(found) > limit else None)
