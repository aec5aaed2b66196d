"""Embedding tables whose training step costs what a batch touches, never whole tables.

A step runs through this folder in one line::

    ids ─collection─▶ keys ─gather─▶ embedded (leaves) ─▶ dense model, loss, backward
                       │                 │ .grad
                       └─────── merge ◀──┘ ─▶ exchange between ranks ─▶ optimizer: touched rows

The looked-up values are leaves of the autograd graph, so the tables need no gradients of their own
and `DistributedDataParallel` wraps the dense part alone. Every rank holds every table
(placement "replicated").
"""

from distrain.embeddings.collection import EmbeddingCollection, TableColumn
from distrain.embeddings.exchange import exchange_rows
from distrain.embeddings.merge import merge_rows
from distrain.embeddings.optimizers import SparseOptimizer

__all__ = ["EmbeddingCollection", "SparseOptimizer", "TableColumn", "exchange_rows", "merge_rows"]
