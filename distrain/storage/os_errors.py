"""Converts the errors of all filesystems to `OSError`, and gives hints for them."""

import contextlib
from collections.abc import Iterator

from distrain.errors import DistrainError


@contextlib.contextmanager
def only_os_errors(number: int | None = None) -> Iterator[None]:
    """Context manager that converts a library's own exceptions, such as botocore's, to `OSError`.

    `number` becomes the `errno` of the `OSError`; `EIO` counts as transient. Without a number, the
    `OSError` is transient if its cause is (`is_transient`). An `OSError` or `DistrainError` raised
    inside is not changed.

    >>> with only_os_errors():
    ...     raise RuntimeError("no endpoint")
    Traceback (most recent call last):
    OSError: RuntimeError: no endpoint
    """
    try:
        yield
    except (OSError, DistrainError):
        raise
    except Exception as error:  # each filesystem has exceptions of its own; or a package is missing
        text = f"{type(error).__name__}: {error}"
        raise (OSError(text) if number is None else OSError(number, text)) from error


TOO_MANY_OPEN = (
    "The process has reached its limit of open files (`ulimit -n`): raise it, for example to "
    "`ulimit -n 65536`, or use fewer threads or workers in a process."
)


def reading_hint(error: BaseException, otherwise: str) -> str:
    """Return a hint for an error while reading a file: `otherwise` if the error is not known.

    >>> reading_hint(OSError(24, "Too many open files"), "Write it again.")[:34]
    'The process has reached its limit '
    """
    text = str(error).lower()
    if "too many open files" in text:
        return TOO_MANY_OPEN
    if "encrypt" in text or "decrypt" in text:
        return "It is encrypted, and no keys are known here: write it again without encryption."
    return otherwise
