"""The rights of callers: tokens, roles, rates of requests."""

from distrain.service.access.policy import (
    Judged as Judged,
    Mistake as Mistake,
    closed_places as closed_places,
    judge as judge,
    levels as levels,
    pointer as pointer,
    tag_mistakes as tag_mistakes,
    with_settings as with_settings,
)
from distrain.service.access.rules import (
    Action as Action,
    has_scope as has_scope,
    max_priority as max_priority,
    may as may,
    role_allows as role_allows,
    visible as visible,
)
from distrain.service.access.sessions import (
    COOKIE as COOKIE,
    CSRF_HEADER as CSRF_HEADER,
    DEFAULT_DAYS as DEFAULT_DAYS,
    MOST_DAYS as MOST_DAYS,
    SESSION_S as SESSION_S,
    csrf_token as csrf_token,
    is_csrf_token as is_csrf_token,
    is_token as is_token,
    key_file as key_file,
    key_fingerprint as key_fingerprint,
    make_session as make_session,
    new_token as new_token,
    read_session as read_session,
    service_key as service_key,
    sign as sign,
    signed_text as signed_text,
    token_sha256 as token_sha256,
)
