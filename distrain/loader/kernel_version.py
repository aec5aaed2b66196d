"""Rejects C kernels that were built from another version of the sources."""

from __future__ import annotations


def check_kernel_version(kernel: str, actual: int | None, expected: int) -> None:
    """Raise an error if C code has another version than its Python code.

    Args:
        kernel: The path of the C code without extension, for the message.
        actual: The version in the C code; `None` if the C code has none.
        expected: The version that the Python code needs.

    Raises:
        ImportError: The versions differ. Without this check, calls could fail or return wrong
            values.
    """
    if actual != expected:
        raise ImportError(
            f"{kernel} is of version {actual}, and its Python code of version {expected}: it was "
            "built before the code was changed. Build it again: `python setup.py build_ext "
            "--inplace` in a checkout, else install distrain again."
        )
