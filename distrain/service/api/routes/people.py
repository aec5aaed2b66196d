"""`/v1/me` and `/v1/tokens`: the caller and their tokens; for admins, all users' tokens."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import ConfigDict, Field

from distrain.jobs.api_answers import Answer, Me, NewToken, Token as TokenAnswer
from distrain.service.access.rules import Action
from distrain.service.access.sessions import DEFAULT_DAYS, MOST_DAYS, new_token
from distrain.service.api.bodies import Request, UserName, answer_of
from distrain.service.api.dependencies import Call
from distrain.service.api.openapi import answers
from distrain.service.api.problems import Problem, not_found
from distrain.service.store.people import Token
from distrain.service.values import Scope

router = APIRouter(tags=["people"])


class TokenRequest(Request):
    """A token to make."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"label": "laptop", "scopes": ["read", "submit"]}]}
    )

    label: Annotated[str, Field(max_length=128)] = Field(
        "", description="A text by which people recognise the token, such as its machine."
    )
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4)] = Field(
        [Scope.READ, Scope.SUBMIT, Scope.CANCEL],
        description="The scopes of the token; the caller's own token must have all of them.",
    )
    days: Annotated[float, Field(ge=1 / 24, le=MOST_DAYS)] = Field(
        DEFAULT_DAYS,
        description="The number of days for which it is valid; at least an hour, `1/24`.",
    )
    user: UserName | None = Field(
        None,
        description="The token's user; null: the caller. Only admins make tokens for other users.",
    )


class TokenList(Answer):
    """Tokens, newest first."""

    tokens: list[TokenAnswer]


@router.get("/v1/me", responses=answers())
def me(call: Call) -> Me:
    """Return the caller's name, projects, roles and scopes."""
    call.require(Action.SEE_SELF)
    caller = call.caller
    return Me(
        user=caller.user,
        is_admin=caller.is_admin,
        roles={project: str(role) for project, role in caller.roles.items()},
        scopes=sorted(map(str, caller.scopes)),
    )


@router.get("/v1/tokens", responses=answers())
def list_tokens(
    call: Call,
    user: Annotated[
        UserName | None,
        Query(
            description="The tokens' user; default: the caller. Only admins list tokens of other "
            "users."
        ),
    ] = None,
) -> TokenList:
    """List a user's tokens, newest first, without the secret texts of the tokens."""
    call.require(Action.SEE_SELF)
    if user not in (None, call.caller.user):
        call.allow(Action.OTHERS_TOKENS)
    tokens = call.store.tokens(user or call.caller.user)
    return TokenList(tokens=[_document(token) for token in tokens])


@router.post("/v1/tokens", status_code=201, responses=answers("quota"))
def create_token(body: TokenRequest, response: Response, call: Call) -> NewToken:
    """Create a token. Only this response contains its secret text; it cannot be read again."""
    user = body.user or call.caller.user
    call.allow(Action.OWN_TOKENS if user == call.caller.user else Action.OTHERS_TOKENS)
    scopes = frozenset(body.scopes)
    if not scopes <= call.caller.scopes:
        raise Problem("forbidden", "a token cannot have scopes that its maker's token lacks")
    now_s = call.service.now_s()
    held, most = call.store.tokens(user), call.service.settings.limits.tokens
    if not call.caller.is_admin and sum(token.is_good(now_s) for token in held) >= most:
        raise Problem(
            "quota",
            f"user {user} has {most} valid tokens, the most that limits.tokens allows",
            hint="Revoke one that is not used: GET /v1/tokens lists them.",
        )
    token, text = new_token(
        call.store, user, label=body.label, days=body.days, scopes=scopes, now_s=now_s
    )
    response.headers["Cache-Control"] = "no-store"
    return NewToken(**_document(token).model_dump(), text=text)


@router.delete("/v1/tokens/{token_id}", status_code=204, responses=answers("not_found"))
def revoke_token(
    token_id: Annotated[str, Path(description="The token's id, as the list of tokens has it.")],
    call: Call,
) -> None:
    """Revoke a token immediately. Only admins revoke other users' tokens.

    A token may always revoke itself; it needs no scope for this.
    """
    own = {token.id for token in call.store.tokens(call.caller.user)}
    if token_id not in own and not call.caller.is_admin:
        raise not_found(f"token {token_id!r}")
    if token_id != call.caller.token_id:
        call.allow(Action.OWN_TOKENS if token_id in own else Action.OTHERS_TOKENS)
    call.store.revoke_token(token_id)


def _document(token: Token) -> TokenAnswer:
    return answer_of(TokenAnswer, token, scopes=sorted(map(str, token.scopes)))
