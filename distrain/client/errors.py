"""Errors of a service and of the connection to it; `distrain.errors` lists all error classes."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from distrain.errors import DistrainError
from distrain.jobs.api_answers import Mistake


class ServiceError(DistrainError):
    """A service rejected or failed a request.

    Attributes:
        code: The service's error code, such as `bad_spec`; "" if no service answered.
        status: The HTTP status; `None` if there was no response.
        pointers: The mistakes in the request, each with a JSON pointer to its place.
    """

    code: str = ""
    status: int | None = None
    pointers: tuple[Mistake, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        where: Mapping[str, object] | None = None,
        hint: str | None = None,
        code: str = "",
        status: int | None = None,
        pointers: Iterable[Mistake] = (),
    ):
        super().__init__(message, where=where, hint=hint)
        self.code, self.status, self.pointers = code, status, tuple(pointers)

    def __reduce__(self) -> tuple[object, ...]:
        more: dict[str, Any] = {"code": self.code, "status": self.status, "pointers": self.pointers}
        return (partial(type(self), self.message, where=self.where, hint=self.hint, **more), ())


class ServiceUnavailable(ServiceError):
    """The last try got no response, or one with the status 502, 503 or 504.

    The request may still have been carried out.
    """

    exit_code = 69


class NotAuthorised(ServiceError):
    """The token is missing or not valid, or it does not allow the request."""

    exit_code = 77


class NotFound(ServiceError):
    """The job, file, project, cluster or token does not exist, or this user may not see it."""

    exit_code = 102


class NotFinished(ServiceError):
    """The request needs a job that has ended."""

    exit_code = 101


class WaitTimedOut(ServiceError):
    """The job has not ended within the timeout; it continues."""

    exit_code = 104


class RequestRefused(ServiceError):
    """The service rejected the request: a wrong spec, a full quota, or the job's state."""
