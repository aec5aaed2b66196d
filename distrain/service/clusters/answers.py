"""Reads responses of servers that may send too much, or for too long."""

import time

import httpx2


def content_of(answer: httpx2.Response, most_bytes: int, until_s: float) -> bytes:
    """Return a response's content.

    Raises ReadError if it has more than `most_bytes`, and ReadTimeout at the time `until_s` of
    `time.monotonic`, however fast the bytes arrive.
    """
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > most_bytes:
            raise httpx2.ReadError(f"its answer has more than {most_bytes:,} bytes")
        if time.monotonic() > until_s:
            raise httpx2.ReadTimeout("its answer took too long")
    return bytes(content)
