"""Tokens: `dtr_ID_SECRET_CRC`, of which the database keeps a hash alone. Pure, but for randomness.

The secret has 256 random bits, so one round of SHA-256 is enough; the CRC tells a typing mistake
from a wrong token before the database is asked.
"""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass, field

PREFIX = "dtr"
DEFAULT_DAYS, MOST_DAYS = 90, 365
_FORM = re.compile(r"dtr_([0-9a-f]{12})_([0-9A-Za-z]{43})_([0-9a-f]{8})")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class NewToken:
    id: str
    text: str = field(repr=False)  # what its user sends; it is shown once and kept nowhere
    sha256: bytes = field(repr=False)  # what the database keeps


def make_token() -> NewToken:
    token_id = secrets.token_hex(6)
    number = secrets.randbits(256)
    letters = []
    for _ in range(43):  # 62 ** 43 > 2 ** 256
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    body = f"{PREFIX}_{token_id}_{''.join(letters)}"
    text = f"{body}_{_crc(body)}"
    return NewToken(token_id, text, token_sha256(text))


def is_token(text: str) -> bool:
    """Whether a text has the form of a token and the right check sum.

    >>> is_token(make_token().text), is_token("dtr_0_x_0")
    (True, False)
    """
    found = _FORM.fullmatch(text)
    return found is not None and _crc(text[: found.start(3) - 1]) == found[3]


def token_sha256(text: str) -> bytes:
    """The hash of a token's text, as the database keeps it."""
    return hashlib.sha256(text.encode()).digest()


def _crc(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
