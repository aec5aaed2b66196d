"""Who may do what: tokens, roles, quotas of requests."""

from distrain.service.access.paths import has_credentials, path_problem
from distrain.service.access.policy import (
    Judged,
    Mistake,
    judge,
    pointer,
    tag_mistakes,
    with_settings,
)
from distrain.service.access.rates import Rates
from distrain.service.access.rules import (
    RULES,
    Action,
    Rule,
    has_scope,
    max_priority,
    may,
    role_allows,
    visible,
)
from distrain.service.access.sessions import (
    COOKIE,
    CSRF_HEADER,
    SESSION_S,
    csrf_token,
    is_csrf_token,
    make_session,
    read_session,
    service_key,
    sign,
    signed_text,
)
from distrain.service.access.tokens import (
    DEFAULT_DAYS,
    MOST_DAYS,
    NewToken,
    is_token,
    make_token,
    token_sha256,
)

__all__ = [
    "Action",
    "RULES",
    "Rule",
    "has_scope",
    "max_priority",
    "may",
    "role_allows",
    "visible",
    "DEFAULT_DAYS",
    "MOST_DAYS",
    "NewToken",
    "is_token",
    "make_token",
    "token_sha256",
    "COOKIE",
    "CSRF_HEADER",
    "SESSION_S",
    "csrf_token",
    "is_csrf_token",
    "make_session",
    "read_session",
    "service_key",
    "sign",
    "signed_text",
    "Rates",
    "has_credentials",
    "path_problem",
    "Judged",
    "Mistake",
    "judge",
    "pointer",
    "tag_mistakes",
    "with_settings",
]
