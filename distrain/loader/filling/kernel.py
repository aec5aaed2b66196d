"""The functions that fill batches: those in C, or in NumPy where no compiler built them."""

from __future__ import annotations

from distrain.loader.filling import fill_numpy, lists_numpy
from distrain.loader.kernel_version import check_kernel_version

try:
    from distrain.loader.filling import _fill
except ImportError:  # built without a compiler
    KERNEL = "NumPy"
    fill = fill_numpy.fill
    gather_lists = lists_numpy.gather_lists
    measure_lists = lists_numpy.measure_lists
    place_lists = lists_numpy.place_lists
else:
    KERNEL = "C"
    fill = _fill.fill
    gather_lists = _fill.gather_lists
    measure_lists = _fill.measure_lists
    place_lists = _fill.place_lists

KERNEL_VERSION = 3
"""That of the C code that is called here; `_fill.c` has the same number."""

if KERNEL == "C":
    check_kernel_version(
        "distrain/loader/filling/_fill", getattr(_fill, "VERSION", None), KERNEL_VERSION
    )
