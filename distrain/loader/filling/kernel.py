"""The functions that fill batches: in C, or in NumPy if the C code was not built."""

from __future__ import annotations

from distrain.loader.kernel_version import check_kernel_version

try:
    from distrain.loader.filling import _fill

    KERNEL = "C"
except ImportError:  # built without a compiler
    from distrain.loader.filling import fill_numpy as _fill  # type: ignore[no-redef]

    KERNEL = "NumPy"

fill = _fill.fill
gather_lists = _fill.gather_lists
measure_lists = _fill.measure_lists
place_lists = _fill.place_lists

KERNEL_VERSION = 4
"""The version of the C code that this module needs; `_fill.c` must have the same number."""

if KERNEL == "C":
    check_kernel_version(
        "distrain/loader/filling/_fill", getattr(_fill, "VERSION", None), KERNEL_VERSION
    )
