"""Gather, sum and update rows of tables: in C, torch and Triton, with the same bits."""

from distrain.embeddings.kernels.dispatch import (
    Grouping,
    add_rows,
    collect,
    draw,
    expand,
    gather,
    is_built,
    keys_of,
    part_segments,
    places_in_rooms,
    repeated,
    unique,
    update,
)
from distrain.embeddings.kernels.fixed import lookup, sum_and_update, sum_segments, update_padded
from distrain.embeddings.kernels.on_torch import made_once, sqrt
from distrain.embeddings.kernels.segments import Rates, Rule, Segments, segments_of
from distrain.embeddings.kernels.triton_use import runs_triton

__all__ = [
    "Grouping",
    "Rates",
    "Rule",
    "Segments",
    "add_rows",
    "collect",
    "draw",
    "expand",
    "gather",
    "is_built",
    "keys_of",
    "lookup",
    "made_once",
    "part_segments",
    "places_in_rooms",
    "repeated",
    "runs_triton",
    "segments_of",
    "sqrt",
    "sum_and_update",
    "sum_segments",
    "unique",
    "update",
    "update_padded",
]
