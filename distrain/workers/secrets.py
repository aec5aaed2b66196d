"""The secrets of a cluster: the token of its scheduler's HTTP server, and its TLS certificate."""

import datetime
import os
from pathlib import Path

from distrain.errors import ClusterError
from distrain.storage.outputs import atomic_file

PRIVATE_MODE = 0o600
TOKEN_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN"
FILE_VARIABLE = "DISTRAIN_DASHBOARD_TOKEN_FILE"
"""The environment variable with the path of a file that contains the token.

The file is, for example, a systemd credential or a mounted secret.
"""
MIN_LENGTH = 16  # fewest characters of a token; shorter ones can be guessed
_MAKE_ONE = "Set it to a secret, such as the output of `openssl rand -hex 32`"

_ROLES = ("SCHEDULER", "WORKER", "CLIENT")
_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_VALID = datetime.timedelta(days=400)
# A certificate is valid from a day ago, since the clocks of some nodes may be behind.
_SKEW = datetime.timedelta(days=1)


def token_of_environment() -> str | None:
    """Return the token of the environment, without surrounding spaces.

    It is the value of `TOKEN_VARIABLE` or, if that is not set, the content of the file that
    `FILE_VARIABLE` names. `None` if neither is set. Raises `ClusterError` if the file cannot be
    read, or the token is empty, too short, or not printable ASCII.
    """
    name, token_text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if token_text is None:
        name, token_text = FILE_VARIABLE, _in_the_file()
    if token_text is None:
        return None
    token = token_text.strip()
    if not token:
        raise ClusterError(
            f"{name} is empty", hint=f"{_MAKE_ONE}, or unset it to leave the dashboard open."
        )
    odd = sorted({character for character in token if not " " <= character <= "~"})
    if odd:
        raise ClusterError(
            f"{name} has characters not allowed in HTTP headers: {', '.join(map(ascii, odd[:5]))}",
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
        # Not `None`: if the file is missing, the scheduler must not be open to everybody.
        raise ClusterError(
            f"cannot read the dashboard's token: {getattr(error, 'strerror', None) or error}",
            where={FILE_VARIABLE: file},
            hint=f"Fix the file, or unset {FILE_VARIABLE}.",
        ) from error


def write_certificate(path: Path) -> None:
    """Write a new key and its self-signed certificate to a PEM file that only this user can read.

    All processes of a cluster use the same file, also as their certificate authority.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "distrain-cluster")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _SKEW,
            not_valid_after=now + _VALID,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    write_private(path, text)


def write_private(path: Path, text: bytes) -> None:
    """Write or replace a file that only this user can read."""
    with atomic_file(path) as partial:
        made = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
        with open(made, "wb") as file:
            file.write(text)


def tls_environment(path: Path) -> dict[str, str]:
    """Return the environment variables that make Dask require TLS with the PEM file at `path`.

    >>> tls_environment(Path("/f/tls.pem"))["DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"]
    '/f/tls.pem'
    """
    file = str(path.absolute())
    return {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
        f"{_TLS}CA_FILE": file,
        **{f"{_TLS}{role}__{part}": file for role in _ROLES for part in ("CERT", "KEY")},
    }


def has_certificates() -> bool:
    """Return True if Dask's configuration (files or variables) names a certificate authority."""
    import dask

    return bool(dask.config.get("distributed.comm.tls.ca-file", None))
