"""A certificate for one cluster: whoever can read its file gets in, nobody else does."""

import datetime
import os
from pathlib import Path

from distrain.storage import whole_file

_ROLES = ("SCHEDULER", "WORKER", "CLIENT")
_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_VALID = datetime.timedelta(days=400)
_SKEW = datetime.timedelta(days=1)
"""Clocks of nodes differ: a certificate that begins now is not valid yet where one is behind."""


def write_certificate(path: Path) -> None:
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
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    write_private(path, text)


def write_private(path: Path, text: bytes) -> None:
    with whole_file(path) as partial:
        made = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(made, "wb") as file:
            file.write(text)


def tls_environment(path: Path) -> dict[str, str]:
    """Variables of Dask's configuration for processes that use the certificate in a file.

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
    """Whether Dask's configuration, of files or variables, names certificates of its own."""
    import dask

    return bool(dask.config.get("distributed.comm.tls.ca-file", None))
