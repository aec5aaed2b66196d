"""Tokens, and the sessions of browsers: signed cookies made from a token.

A token is `dtr_ID_SECRET_CRC`; the database stores only its hash. The secret has 256 random bits,
so one round of SHA-256 is enough. The CRC detects typing mistakes without a database query. A
cookie contains the token's hash and an expiry, signed with the service's key. Cookies are not
stored, and revoking a token ends its sessions immediately.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from itsdangerous import BadData, Signer, URLSafeSerializer

from distrain.errors import InputError
from distrain.service.settings import Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store
from distrain.service.values import Scope

PREFIX = "dtr"
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
    body = f"{PREFIX}_{token_id}_{secrets.token_hex(32)}"
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
    """Make and store a token of a user; also return its text, which is not stored.

    The token is valid for `days` from `now_s`, by default the database's time.
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
CSRF_HEADER = "X-CSRF-Token"
SESSION_S = 12 * 3600.0
_KEY_BYTES = 32


def key_file(settings: Settings) -> Path:
    return settings.secrets_file or settings.data_dir / "service.key"


def service_key(settings: Settings) -> bytes:
    """Return the key that signs cookies, creating its file if missing.

    Raises InputError if the file cannot be read or created, or the key is too short.
    """
    path = key_file(settings)
    try:
        if not path.exists():
            _make_key(path)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text of hexadecimal digits"
        raise InputError(
            f"cannot use the service's key: {reason}",
            where={"file": str(path)},
            hint="Name a file with 64 hexadecimal digits as secrets_file, or remove this one.",
        ) from None
    if len(key) < _KEY_BYTES:
        raise InputError(
            "the service's key is too short",
            where={"file": str(path)},
            hint=f"It has {len(key)} bytes; `openssl rand -hex {_KEY_BYTES}` makes a valid key.",
        )
    return key


def key_fingerprint(settings: Settings) -> str:
    """Return a hash that identifies the key without revealing it; raises InputError."""
    return hmac.new(service_key(settings), b"fingerprint", hashlib.sha256).hexdigest()[:32]


def _make_key(path: Path) -> None:
    # Several API processes may start at once: the first link wins, and all read the same key.
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    handle = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(mine, path)
    finally:
        mine.unlink()


def sign(key: bytes, purpose: str, text: str) -> str:
    """Return a text with a signature that is valid for one purpose only."""
    return _serializer(key, purpose).dumps(text)


def signed_text(key: bytes, purpose: str, signed: str) -> str | None:
    """Return the signed text; `None` if the signature is invalid.

    >>> signed_text(b"key", "cookie", sign(b"key", "cookie", "a text"))
    'a text'
    """
    try:
        return str(_serializer(key, purpose).loads(signed))
    except BadData:
        return None


def _serializer(key: bytes, purpose: str) -> URLSafeSerializer:
    return URLSafeSerializer(key, purpose, signer_kwargs={"digest_method": hashlib.sha256})


def make_session(key: bytes, sha256: bytes, now_s: float) -> str:
    return sign(key, "session", f"{sha256.hex()} {now_s + SESSION_S:.6f}")


def read_session(key: bytes, cookie: str, now_s: float) -> tuple[bytes, float] | None:
    """Return the hash of a session's token, and the unix time at which the session began.

    `None` if the session has ended, or the cookie's signature is invalid.
    """
    text = signed_text(key, "session", cookie)
    if text is None:
        return None
    sha256, _, end_s = text.partition(" ")
    return (bytes.fromhex(sha256), float(end_s) - SESSION_S) if now_s < float(end_s) else None


def csrf_token(key: bytes, cookie: str) -> str:
    """Return the token that proves a page's session and does not reveal the session's cookie."""
    return _csrf_signer(key).get_signature(cookie).decode()


def is_csrf_token(key: bytes, cookie: str, given: str) -> bool:
    return _csrf_signer(key).verify_signature(cookie, given)


def _csrf_signer(key: bytes) -> Signer:
    return Signer(key, "csrf", digest_method=hashlib.sha256)
