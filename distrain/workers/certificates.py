"""Reads when certificates expire, for monitoring."""

import os
from pathlib import Path


def ends_s(certificate: str | os.PathLike[str]) -> float | None:
    """Return the unix time at which the first of the certificates in a PEM file or text expires.

    `None` if the file cannot be read, has no valid certificate, or if the library `cryptography` is
    not installed.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    try:
        text = str(certificate)
        content = text.encode() if "-----BEGIN" in text else Path(text).read_bytes()
        certificates = x509.load_pem_x509_certificates(content)
    except (OSError, ValueError):
        return None
    return min(one.not_valid_after_utc.timestamp() for one in certificates)
