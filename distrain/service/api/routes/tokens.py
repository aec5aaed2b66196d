"""`/v1/tokens`: the caller's tokens; of admins, anybody's."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from distrain.service.access import Action, make_token
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import Caller, Counted, Service, allow, audit_note, require
from distrain.service.api.documents import NewTokenDocument, TokenList, TokenRequest, UserName
from distrain.service.api.problems import Problem, not_found
from distrain.service.api.showing import token_document
from distrain.service.store import Token

router = APIRouter(tags=["people"])

_DAY_S = 86400.0


@router.get("/v1/tokens", responses=answers())
def list_tokens(
    caller: Caller,
    service: Service,
    user: Annotated[
        UserName | None, Query(description="Whose; only admins see others' tokens.")
    ] = None,
) -> TokenList:
    """List a user's tokens, newest first, without their texts."""
    require(caller, Action.SEE_SELF)
    if user not in (None, caller.user):
        allow(caller, Action.OTHERS_TOKENS, None)
    found = service.store.tokens(user or caller.user)
    return TokenList(tokens=[token_document(token) for token in found])


@router.post("/v1/tokens", status_code=201, dependencies=[Counted], responses=answers())
def create_token(
    body: TokenRequest, request: Request, response: Response, caller: Caller, service: Service
) -> NewTokenDocument:
    """Make a token. Its text is in this answer alone; nobody can read it again."""
    user = body.user or caller.user
    allow(caller, Action.OWN_TOKENS if user == caller.user else Action.OTHERS_TOKENS, None)
    scopes = frozenset(body.scopes)
    if not scopes <= caller.scopes:
        raise Problem("forbidden", "a token cannot have scopes that its maker's token lacks")
    made, now_s = make_token(), service.now_s()
    expires_at_s = now_s + body.days * _DAY_S
    token = Token(made.id, made.sha256, user, body.label, scopes, now_s, expires_at_s)
    service.store.put_token(token)
    note = audit_note(request)
    note.target, note.details = made.id, {"user": user, "scopes": sorted(map(str, scopes))}
    response.headers["Cache-Control"] = "no-store"
    return NewTokenDocument(**token_document(token).model_dump(), text=made.text)


@router.delete(
    "/v1/tokens/{token_id}",
    status_code=204,
    dependencies=[Counted],
    responses=answers("not_found"),
)
def revoke_token(token_id: str, request: Request, caller: Caller, service: Service) -> None:
    """Revoke a token, at once. Every token may revoke itself, whatever its scopes."""
    audit_note(request).target = token_id
    own = {token.id for token in service.store.tokens(caller.user)}
    if token_id not in own and not caller.is_admin:
        raise not_found(f"token {token_id!r}")
    if token_id != caller.token_id:
        allow(caller, Action.OWN_TOKENS if token_id in own else Action.OTHERS_TOKENS, None)
    service.store.revoke_token(token_id)
