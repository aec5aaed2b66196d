"""The token that guards what a scheduler serves over HTTP, and its environment variable."""

import os

from distrain.errors import ClusterError

TOKEN_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN"
MIN_LENGTH = 16
"""Characters of a token at least; a shorter one can be guessed."""

_MAKE_ONE = "Set it to a secret, such as the output of `openssl rand -hex 32`"


def token_of_environment() -> str | None:
    """The token, or `None` where the variable is not set.

    White space around it is removed: secrets that are read from files end with a line end.

    Raises:
        ClusterError: It is empty, shorter than `MIN_LENGTH`, or has characters that no HTTP header
            carries.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return None
    token = given.strip()
    if not token:
        raise ClusterError(
            f"{TOKEN_VARIABLE} is empty",
            hint=f"{_MAKE_ONE}, or unset it to leave the dashboard open.",
        )
    odd = sorted({character for character in token if not " " <= character <= "~"})
    if odd:
        raise ClusterError(
            f"{TOKEN_VARIABLE} has characters that no HTTP header carries: "
            f"{', '.join(map(ascii, odd[:5]))}",
            hint=f"{_MAKE_ONE}: letters, digits and punctuation of ASCII.",
        )
    if len(token) < MIN_LENGTH:
        raise ClusterError(
            f"{TOKEN_VARIABLE} is too short: it has {len(token)} of at least "
            f"{MIN_LENGTH} characters",
            hint=f"{_MAKE_ONE}.",
        )
    return token
