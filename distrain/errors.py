"""The tree of expected errors, with the command line's exit codes.

    DistrainError                  exit code
    ├── InputError                 1    an input cannot be used
    │   ├── SpecError              1    the job spec
    │   ├── SchemaError            1    a schema, or a column that it lacks
    │   ├── DataError              1    a data file, row group, column or value
    │   │   └── Damaged            1    a checkpoint (`distrain.train.checkpoint`)
    │   ├── ModelError             1    a model cannot be built, run or exported
    │   │   └── NonFiniteOutput    1    a model's output is not finite
    │   └── Unstorable             1    a value that the service's database cannot hold
    ├── OutputError                1    an output could not be written whole
    │   └── RunInUse               1    another command or service uses the run (`distrain.runs`)
    ├── Unavailable                1    a storage does not answer now; a retry may succeed
    ├── StoreError                 1    the database rejects a change (`distrain.service.store`)
    │   ├── RowNotFound            102  no such job, project, user or token
    │   ├── IdTaken                1    another job has the id of a new job
    │   ├── QuotaExceeded          1    a project has too many waiting jobs
    │   ├── WrongState             1    a job's state, or a project's origin, forbids the change
    │   ├── SchemaDiffers          1    the database's tables have another version
    │   └── DatabaseInUse          1    another service uses the database
    ├── Refused                    1    a scheduler rejected a service's call (`service.clusters`)
    ├── ClusterError               69   no cluster, or too few workers
    │   ├── KubeRefused            69   a Kubernetes API refused a call (`service.clusters`)
    │   └── Unreachable            69   a service's scheduler gave no answer (`service.clusters`)
    ├── JobError                   100  a job started and then failed
    │   └── JobCancelled           103  a job was stopped on request
    └── ServiceError               1    a request to a service failed (`distrain.client`)
        ├── ServiceUnavailable     69   no answer within the client's timeout
        ├── NotAuthorised          77   a missing token, or one that does not allow this
        ├── NotFinished            101  the operation needs a job that has ended
        ├── NotFound               102  no job, file, project, ... of that name for this user
        ├── WaitTimedOut           104  a job has not ended in the time given
        └── RequestRefused         1    a bad spec, a full quota, or the job's state forbids it

An error says what failed, where, the likely cause and the next step. The command line prints
exactly `str(error)`, and a traceback only for errors outside this tree.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

_AGAIN_S = 0.05
"""Seconds until a stop signal that arrived during an import or in a finaliser is sent again."""


STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Signals that request an orderly end; the second is Slurm's usual notice (`USR1@90`)."""


class Terminated(KeyboardInterrupt):
    """Raised after a stop signal, so that the process ends in an orderly way, as after Ctrl-C."""


INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""The exit codes of commands that were ended by Ctrl-C, and by a stop signal."""


def word_and_exit_code(error: BaseException | None) -> tuple[str, int]:
    """Return how a command ended by Ctrl-C or, if `error` is `Terminated`, by a stop signal."""
    if isinstance(error, Terminated):
        return "terminated", TERMINATED
    return "interrupted", INTERRUPTED


def _raise_stop(number: int, frame: FrameType | None) -> None:
    """Raise `Terminated`, or `KeyboardInterrupt` for Ctrl-C.

    If an import is running, send the signal again after `_AGAIN_S`, until the import has ended.
    C extension modules turn exceptions raised during their import into other errors, swallow them,
    or leave libraries behind that keep the process from ending. An import from which distrain was
    called, such as the import of a script that trains, does not delay the exception.
    """
    if _is_importing(frame):
        # Not with `threading`, whose locks the import may hold.
        _thread.start_new_thread(_send_again, (number,))
        return
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _is_importing(frame: FrameType | None) -> bool:
    """Return True if an import runs; of imports outside distrain's outermost function, none counts.

    `frame` is the innermost one.
    """
    is_in_import, outermost_imports = False, None
    while frame is not None:
        is_in_import |= frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        if _is_of_distrain(frame):
            outermost_imports = is_in_import
        frame = frame.f_back
    return is_in_import if outermost_imports is None else outermost_imports


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)


def _is_of_distrain(frame: FrameType) -> bool:
    is_module = frame.f_code.co_name == "<module>"
    return not is_module and str(frame.f_globals.get("__name__")).startswith("distrain.")


@contextmanager
def on_sigterm(handler: Callable[[int, Any], object] = _raise_stop) -> Iterator[None]:
    """Call `handler(number, frame)` for the `STOP_SIGNALS` that arrive in the block.

    The default handler raises `Terminated`; with it, Ctrl-C during an import is delayed until the
    import ends, and none is lost in a finaliser. Does nothing in threads other than the main
    thread. If the embedding program has its own handler for SIGUSR1 or Ctrl-C, that handler is
    kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, handler)}
    # Inside another `on_sigterm` block both signals have the same handler.
    if signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, before[signal.SIGTERM]):
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, handler)
    if handler is _raise_stop and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, handler)
    try:
        with lost_interrupts_sent_again() if handler is _raise_stop else nullcontext():
            yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def lost_interrupts_sent_again() -> Iterator[None]:
    """Send Ctrl-C or a stop signal again if Python ignores the exception of its handler.

    Python ignores exceptions raised in finalisers and in some callbacks of C code; a signal that
    arrives there would be lost. Other ignored exceptions are reported as before. Does nothing in
    threads other than the main thread, the only one in which handlers run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.unraisablehook

    def send_again(ignored: "sys.UnraisableHookArgs") -> None:
        if isinstance(ignored.exc_value, KeyboardInterrupt):
            is_signal = isinstance(ignored.exc_value, Terminated)
            number = signal.SIGTERM if is_signal else signal.SIGINT
            _thread.start_new_thread(_send_again, (number,))
        else:
            before(ignored)

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        if sys.unraisablehook is send_again:  # otherwise the program has set its own meanwhile
            sys.unraisablehook = before


class DistrainError(Exception):
    """An expected error: what failed, where, and what to do next.

    Args:
        message: What failed, in one sentence, with the offending value.
        where: Named places in reading order: file, row group, column, job, attempt, rank, ...
        hint: The likely cause, or the next command.

    Attributes:
        parts: The single errors if `ErrorCollector` joined several into this one.
    """

    exit_code = 1
    parts: "tuple[DistrainError, ...]" = ()
    # torch's DataLoader raises a worker's error as `error_class(message=...)` if the class has a
    # message. Otherwise the raising frame keeps the error. This makes a reference cycle with the
    # iterator, and when the iterator is garbage-collected, it waits 5 s for each worker.
    message: str = "an error"

    def __init__(
        self, message: str, *, where: Mapping[str, object] | None = None, hint: str | None = None
    ):
        self.message = message
        self.where = dict(where or {})
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        """Render the message, then one indented line per place, then the hint.

        >>> print(DataError("label is 2, not 0 or 1", where={"file": "a.parquet"}, hint="Look."))
        label is 2, not 0 or 1
          file: a.parquet
          hint: Look.
        """
        lines = [self.message]
        lines += [f"  {place}: {value}" for place, value in self.where.items()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        where = {place: str(value) for place, value in self.where.items()}
        return {"message": self.message, "where": where, "hint": self.hint}

    def __reduce__(self) -> tuple[object, ...]:
        # Dask tasks pickle errors; the default would drop the keyword arguments.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(
    kind: type[DistrainError], message: str, where: Mapping[str, object], hint: str | None
) -> DistrainError:
    return kind(message, where=where, hint=hint)


def problems_in(error: Exception) -> list[str]:
    """Return an error's text; for pydantic's `ValidationError`, each problem with its place.

    >>> problems_in(ValueError("3 is too small"))
    ['3 is too small']
    """
    problems = getattr(error, "errors", None)
    if problems is None:
        return [str(error)]
    places = [(".".join(map(str, one["loc"])), str(one["msg"])) for one in problems()]
    return [f"{place}: {text}" if place else text for place, text in places]


class InputError(DistrainError):
    """An input that cannot be used."""


class SpecError(InputError):
    """A job spec with an unknown key or an unusable value."""


class SchemaError(InputError):
    """A schema that cannot be read, or that lacks a column or a property."""


class DataError(InputError):
    """A data file that is missing, damaged, or holds a value that cannot be used."""


class ModelError(InputError):
    """A model that cannot be built from its blocks and columns, run, or exported."""


class NonFiniteOutput(ModelError):
    """A model whose output is not finite."""


class OutputError(DistrainError):
    """An output that could not be written completely; no partial output remains."""


class Unavailable(DistrainError):
    """A storage that does not answer now; a retry may succeed."""


class ClusterError(DistrainError):
    """No cluster could be reached, it has too few workers, or a service cannot use its port."""

    exit_code = 69


class JobError(DistrainError):
    """A job started, and then failed."""

    exit_code = 100


class JobCancelled(JobError):
    """A job was stopped on request."""

    exit_code = 103


class ErrorCollector:
    """Collects the expected errors of checks that do not depend on each other.

    >>> mistakes = ErrorCollector()
    >>> with mistakes.collected():
    ...     raise SpecError("no such column", hint="Look.")
    >>> with mistakes.collected():
    ...     raise OutputError("could not write")
    >>> try:
    ...     mistakes.raise_collected()
    ... except InputError as error:
    ...     print(error)
    2 mistakes:
    1. no such column
       hint: Look.
    2. could not write
    """

    def __init__(self) -> None:
        self.found: list[DistrainError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect an `InputError`, `OutputError` or `ClusterError` raised inside the block."""
        try:
            yield
        except (InputError, OutputError, ClusterError) as error:
            self.found.extend(error.parts or [error])

    def add_json(self, document: Mapping[str, Any], **where: object) -> None:
        """Add an `InputError` made from `document`, the `to_json` of another process's error.

        `where` has further places; the document's places take precedence.
        """
        places = document.get("where")
        where |= places if isinstance(places, Mapping) else {}
        hint = document.get("hint")
        error = InputError(
            str(document.get("message")), where=where, hint=None if hint is None else str(hint)
        )
        self.found.append(error)

    def raise_collected(self) -> None:
        """Raise the collected errors, if any: one unchanged, several joined into one error.

        The joined error has the errors' type if all have the same one, else it is an `InputError`.
        """
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            lines = [f"{len(self.found)} mistakes:"]
            for number, error in enumerate(self.found, 1):
                lines.append(f"{number}. " + str(error).replace("\n", "\n "))
            kinds = {type(error) for error in self.found}
            kind = kinds.pop() if len(kinds) == 1 else InputError
            several = kind("\n".join(lines))
            several.parts = tuple(self.found)
            raise several
