"""Reads HTTP responses with limits on their size and duration."""

import time

import httpx2


def content_of(answer: httpx2.Response, most_bytes: int, until_s: float) -> bytes:
    """Return a response's content.

    Raises ReadError if it has more than `most_bytes`, and ReadTimeout if it is still arriving at
    the time `until_s` of `time.monotonic`.
    """
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > most_bytes:
            raise httpx2.ReadError(f"its answer has more than {most_bytes:,} bytes")
        if time.monotonic() > until_s:
            raise httpx2.ReadTimeout("its answer took too long")
    return bytes(content)
