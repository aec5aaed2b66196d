"""Requests, answers, and the steps of which every call to a service consists.

A call is a generator, a `Flow`: it yields steps, gets what each brought, and knows no network and
no clock. `Client` does the steps with threads' means and `AsyncClient` with those of asyncio, so
that both behave the same.
"""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        path: Below the service's address, with quoted segments.
        body: JSON values, or `None`.
        repeats: Whether it may be sent again if nobody knows what became of it: it changes
            nothing, changes the same thing once, or bears an idempotency key.
        read_s: How long the connection may be silent.
        whole_s: How long all of the answer may take; `None`: for ever.
        held_s: How long the service may hold the request back before it answers.
    """

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    repeats: bool = True
    read_s: float = 30.0
    whole_s: float | None = 120.0
    held_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        headers: With names in lower case.
        cut: Why its content is only a beginning; "" if it is whole.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    cut: str = ""

    @property
    def is_good(self) -> bool:
        """Whether what was asked was done."""
        return 200 <= self.status < 300

    def document(self) -> Any:
        """The content as JSON; `None` if it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


@dataclass(frozen=True)
class Failed:
    """No answer, or no more of it.

    Attributes:
        sent: Whether the request may have reached the service.
        for_good: Whether another try can only end the same way, as with a certificate.
    """

    why: str
    sent: bool = True
    for_good: bool = False


@dataclass(frozen=True)
class Send:
    """Send a request and read all of its answer: brings an `Answer`, or `Failed`."""

    call: Call


@dataclass(frozen=True)
class Open:
    """Send a request, and read no more than the head of its answer: brings what `Send` brings.

    The answer is let go of at the next `Open`, and at the flow's end.
    """

    call: Call


@dataclass(frozen=True)
class Read:
    """Read on in what `Open` opened: brings bytes, `None` at its end, or `Failed`."""


@dataclass(frozen=True)
class Pause:
    """Wait; `why` is what the user may be told."""

    seconds: float
    why: str = ""


@dataclass(frozen=True)
class Now:
    """Brings the time in seconds, of a clock that never goes back."""


@dataclass(frozen=True)
class Emit:
    """Hand a value to who iterates."""

    value: Any


Step = Send | Open | Read | Pause | Now | Emit
Flow = Generator[Step, Any, Result]


@dataclass(frozen=True)
class Done:
    """The last value of `finished`: what the flow returned."""

    result: Any


def finished(flow: Flow[Any]) -> Flow[None]:
    """A flow that also emits its result, for who can only iterate."""
    yield Emit(Done((yield from flow)))
