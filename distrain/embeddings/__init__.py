"""Embedding tables whose training step costs what a batch touches, never whole tables.

A step runs through this folder in one line::

    ids ─route─▶ distinct rows ─fetch─▶ ─expand─▶ embedded (leaves) ─▶ dense model, loss, backward
                      │                               │ .grad
                      └────────────── collect ◀───────┘ ─▶ exchange between ranks ─▶ optimizer

The looked-up values are leaves of the autograd graph, so the tables need no gradients of their own.
Ranks hold every row ("replicated") or each its share ("row_wise"), with bitwise the same results.
"""

from distrain.embeddings.collection import EmbeddingCollection, TouchedRows
from distrain.embeddings.columns import TableColumn
from distrain.embeddings.layout import PLACEMENTS
from distrain.embeddings.optimizers import SparseOptimizer
from distrain.embeddings.peers import Peers
from distrain.embeddings.route import Route, Traffic

__all__ = [
    "PLACEMENTS",
    "EmbeddingCollection",
    "Peers",
    "Route",
    "SparseOptimizer",
    "TableColumn",
    "TouchedRows",
    "Traffic",
]
