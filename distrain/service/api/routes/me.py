"""`/v1/me`: the caller."""

from fastapi import APIRouter

from distrain.service.access import Action
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import Caller, require
from distrain.service.api.documents import Me

router = APIRouter(tags=["people"])


@router.get("/v1/me", responses=answers())
def me(caller: Caller) -> Me:
    """The caller, and what they may do."""
    require(caller, Action.SEE_SELF)
    return Me(
        user=caller.user,
        is_admin=caller.is_admin,
        roles={project: str(role) for project, role in caller.roles.items()},
        scopes=sorted(map(str, caller.scopes)),
        projects=sorted(caller.roles),
    )
