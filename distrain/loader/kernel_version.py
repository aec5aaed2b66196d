"""Kernels that were built from other sources than the Python code beside them are refused."""

from __future__ import annotations


def check_kernel_version(kernel: str, found: int | None, wanted: int) -> None:
    """Refuse C code of another version; `kernel` is its path without an ending.

    Raises:
        ImportError: A later error would name the files that are read, or values would be wrong.
    """
    if found != wanted:
        raise ImportError(
            f"{kernel} is of version {found}, and its Python code of version {wanted}: it was "
            "built before the code was changed. Build it again: `python setup.py build_ext "
            "--inplace` in a checkout, else install distrain again."
        )
