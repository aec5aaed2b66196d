"""The token that guards what a scheduler serves over HTTP, and its environment variables."""

import os
from pathlib import Path

from distrain.errors import ClusterError

TOKEN_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN"
FILE_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN_FILE"
"""Names a file with the token, such as a credential of systemd or a mounted secret."""
MIN_LENGTH = 16
"""Characters of a token at least; a shorter one can be guessed."""

_MAKE_ONE = "Set it to a secret, such as the output of `openssl rand -hex 32`"


def token_of_environment() -> str | None:
    """The token, or `None` where neither variable is set; `TOKEN_VARIABLE` goes before the file.

    White space around it is removed: secrets in files end with a line end.
    """
    name, given = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if given is None:
        name, given = FILE_VARIABLE, _in_the_file()
    if given is None:
        return None
    token = given.strip()
    if not token:
        raise ClusterError(
            f"{name} is empty",
            hint=f"{_MAKE_ONE}, or unset it to leave the dashboard open.",
        )
    odd = sorted({character for character in token if not " " <= character <= "~"})
    if odd:
        raise ClusterError(
            f"{name} has characters that no HTTP header carries: {', '.join(map(ascii, odd[:5]))}",
            hint=f"{_MAKE_ONE}: letters, digits and punctuation of ASCII.",
        )
    if len(token) < MIN_LENGTH:
        raise ClusterError(
            f"{name} is too short: it has {len(token)} of at least {MIN_LENGTH} characters",
            hint=f"{_MAKE_ONE}.",
        )
    return token


def _in_the_file() -> str | None:
    file = os.environ.get(FILE_VARIABLE)
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        # Never none: a scheduler whose secret is missing must not be open.
        raise ClusterError(
            f"cannot read the dashboard's token: {getattr(error, 'strerror', None) or error}",
            where={FILE_VARIABLE: file},
            hint=f"Mend the file, or unset {FILE_VARIABLE}.",
        ) from error
