"""Failures of all filesystems as `OSError`."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def only_os_errors(number: int | None = None) -> Iterator[None]:
    """Turn a library's own exceptions, such as botocore's, into `OSError`.

    Args:
        number: Its `errno`. With `EIO` it counts as one that may pass, whatever its cause; without
            a number the cause decides (`is_transient`).

    >>> with only_os_errors():
    ...     raise RuntimeError("no endpoint")
    Traceback (most recent call last):
    OSError: RuntimeError: no endpoint
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # each filesystem has exceptions of its own; or a package is missing
        text = f"{type(error).__name__}: {error}"
        raise (OSError(text) if number is None else OSError(number, text)) from error
