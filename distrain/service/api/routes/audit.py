"""`/v1/audit`: who changed what, or was refused; for admins."""

from typing import Annotated

from fastapi import APIRouter, Query

from distrain.service.access import Action
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import Caller, Service, allow
from distrain.service.api.documents import AuditPage, AuditRow
from distrain.service.decide import utc

router = APIRouter(tags=["people"])


@router.get("/v1/audit", responses=answers())
def list_audit(
    caller: Caller,
    service: Service,
    before: Annotated[
        int | None, Query(ge=1, lt=2**63, description="The last page's `next_before`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> AuditPage:
    """List audit rows, newest first."""
    allow(caller, Action.SEE_AUDIT, None)
    found = service.store.audit_rows(before, limit + 1)
    rows = [AuditRow.of(row, at=utc(row.at_s)) for row in found[:limit]]
    return AuditPage(rows=rows, next_before=rows[-1].id if len(found) > limit else None)
