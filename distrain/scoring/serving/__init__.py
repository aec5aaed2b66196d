"""Exports that score raw rows without distrain."""

from distrain.scoring.serving.folder import (
    ServedExport as ServedExport,
    check_served as check_served,
    write_served as write_served,
)
