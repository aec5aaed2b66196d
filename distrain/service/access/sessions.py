"""Tokens, and browser sessions, which users begin with a token.

A token is `dtr_ID_SECRET_CRC`; the database stores only its hash. The secret has 256 random bits,
so one round of SHA-256 is enough. The CRC detects typing mistakes without a database query. A
session's cookie is a random text, of which the database also stores only the hash. Revoking a token
ends its sessions immediately.
"""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass, field

from distrain.service.store.people import Token
from distrain.service.store.store import Store
from distrain.service.values import Scope

DEFAULT_DAYS, MOST_DAYS = 90, 365
_DAY_S = 86400.0
_FORM = re.compile(r"dtr_([0-9a-f]{12})_([0-9A-Za-z]{43}|[0-9a-f]{64})_([0-9a-f]{8})")


@dataclass(frozen=True)
class NewToken:
    id: str
    text: str = field(repr=False)  # sent by its user; shown once and never stored
    sha256: bytes = field(repr=False)  # stored in the database


def make_token() -> NewToken:
    token_id = secrets.token_hex(6)
    body = f"dtr_{token_id}_{secrets.token_hex(32)}"
    text = f"{body}_{_crc(body)}"
    return NewToken(token_id, text, token_sha256(text))


def new_token(
    store: Store,
    user: str,
    *,
    label: str = "",
    days: float = DEFAULT_DAYS,
    scopes: frozenset[Scope] = frozenset(Scope),
    now_s: float | None = None,
) -> tuple[Token, str]:
    """Make and store a token of a user; return it and its text, which is not stored.

    The token is valid for `days` from the Unix time `now_s`, by default the database's time.
    `label` is a text by which users recognise it; `scopes` limit its use.
    """
    made, now_s = make_token(), store.now_s() if now_s is None else now_s
    end_s = now_s + days * _DAY_S
    token = Token(made.id, made.sha256, user, label, scopes, now_s, end_s)
    store.put_token(token)
    return token, made.text


def is_token(text: str) -> bool:
    """Return True if a text has the form of a token and the right checksum.

    >>> is_token(make_token().text), is_token("dtr_0_x_0")
    (True, False)
    """
    found = _FORM.fullmatch(text)
    return found is not None and _crc(text[: found.start(3) - 1]) == found[3]


def token_sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _crc(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


COOKIE = "distrain_session"
SESSION_S = 12 * 3600.0


def new_session(store: Store, token_id: str, now_s: float) -> str:
    """Make and store a browser session for a token, from the Unix time `now_s` on.

    Return its cookie. Only the cookie's hash is stored.
    """
    cookie = secrets.token_urlsafe(32)
    store.put_session(token_sha256(cookie), token_id, now_s, now_s + SESSION_S)
    return cookie
