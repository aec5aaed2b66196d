"""When certificates end, as those who watch a process need to know."""

import os
from pathlib import Path


def ends_s(certificate: str | os.PathLike[str]) -> float | None:
    """The end of the first certificate to end, in unix seconds, of a PEM file or text.

    `None` if it cannot be read, or without the library `cryptography`.
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
