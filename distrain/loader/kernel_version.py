"""Rejects C kernels that were built from another version of the sources."""

from __future__ import annotations


def check_kernel_version(kernel: str, actual: int | None, expected: int) -> None:
    """Raise an error for C code of another version; `kernel` is its path without extension.

    Raises:
        ImportError: The versions differ. Without this check, later errors or values would mislead.
    """
    if actual != expected:
        raise ImportError(
            f"{kernel} is of version {actual}, and its Python code of version {expected}: it was "
            "built before the code was changed. Build it again: `python setup.py build_ext "
            "--inplace` in a checkout, else install distrain again."
        )
