"""Secrets of webhooks, and the signatures made with them."""

import hashlib
import hmac


def webhook_secret(key: bytes, webhook_id: str) -> str:
    """The secret with which a webhook's receiver checks signatures; nobody keeps it.

    `key` is the service's own.
    """
    return hmac.new(key, f"webhook\0{webhook_id}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """The value of `Distrain-Signature`.

    >>> signature("secret", "1700000000", b"{}")[:12]
    'v1=b8569b787'
    """
    signed = timestamp.encode() + b"." + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
