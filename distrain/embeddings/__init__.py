"""Embedding tables whose training step costs what a batch touches, never whole tables.

A step runs through this folder in one line::

    ids ─route─▶ distinct rows ─fetch─▶ ─expand─▶ embedded (leaves) ─▶ dense model, loss, backward
                      │                               │ .grad
                      └────────────── collect ◀───────┘ ─▶ exchange between ranks ─▶ optimizer

The looked-up values are leaves of the autograd graph, so the tables need no gradients of their own.
Ranks hold every row ("replicated") or each its share ("row_wise"), with bitwise the same results;
or each a share of its group's copy ("two_level"), with the same to rounding.
"""

from distrain.embeddings.all_to_all import all_to_all
from distrain.embeddings.canonical import CanonicalTensor, canonical_state, canonical_weights
from distrain.embeddings.collection import EmbeddingCollection, TouchedRows
from distrain.embeddings.columns import Combiner, TableColumn, first_of_tables
from distrain.embeddings.fixed import FixedTables
from distrain.embeddings.padded import PaddedRoutes
from distrain.embeddings.peers import Arriving, Peers, process_groups
from distrain.embeddings.route import Route, Traffic
from distrain.embeddings.sparse_optimizer import SparseOptimizer
from distrain.embeddings.store import PLACEMENTS, Store
from distrain.host_memory import empty

__all__ = [
    "Arriving",
    "CanonicalTensor",
    "Combiner",
    "EmbeddingCollection",
    "FixedTables",
    "PLACEMENTS",
    "PaddedRoutes",
    "Peers",
    "Route",
    "SparseOptimizer",
    "Store",
    "TableColumn",
    "TouchedRows",
    "Traffic",
    "all_to_all",
    "canonical_state",
    "canonical_weights",
    "empty",
    "first_of_tables",
    "process_groups",
]
