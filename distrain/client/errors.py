"""The errors of a service and of the way to it; `distrain.errors` draws the tree."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from distrain.errors import DistrainError
from distrain.jobs.documents import Mistake


class ServiceError(DistrainError):
    """A service did not do what it was asked.

    Attributes:
        code: The service's word for it, such as `bad_spec`; "" where no service answered.
        status: The status of HTTP; `None` where no answer came.
        pointers: The single mistakes in what was sent.
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
    """No answer came for as long as the client tries: what was asked may have been done."""

    exit_code = 69


class NotAuthorised(ServiceError):
    """There is no token, it is not valid, or it does not allow this."""

    exit_code = 77


class NotFound(ServiceError):
    """There is no such job, file, project, cluster or token, or this user may not see it."""

    exit_code = 102


class NotFinished(ServiceError):
    """This needs a job that has ended."""

    exit_code = 101


class WaitTimedOut(ServiceError):
    """A job has not ended within the time that was given; it goes on."""

    exit_code = 104


class RequestRefused(ServiceError):
    """The service does not take this: a bad spec, a full quota, a state that does not allow it."""
