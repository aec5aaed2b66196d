"""Requests to a service, and their answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    method: str
    path: str  # below the service's address, with quoted segments
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # JSON values, or `None`
    # whether it may be sent again if nobody knows what became of it: it changes nothing, changes
    # the same thing once, or bears an idempotency key
    repeats: bool = True
    read_s: float = 30.0  # how long the connection may be silent
    whole_s: float | None = 120.0  # how long all of the answer may take; `None`: for ever
    held_s: float = 0.0  # how long the service may hold the request back before it answers


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)  # with names in lower case
    content: bytes = b""
    cut: str = ""  # why its content is only a beginning; "" if it is whole

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def document(self) -> Any:
        """The content as JSON; `None` if it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


@dataclass(frozen=True)
class Failed:
    """No answer, or no more of it."""

    why: str
    sent: bool = True  # whether the request may have reached the service
    for_good: bool = False  # whether another try can only end the same way, as with a certificate
