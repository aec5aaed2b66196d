"""Embedding tables whose training step costs what a batch touches, never whole tables.

A step runs through this folder in one line::

    ids ─route─▶ distinct rows ─fetch─▶ ─expand─▶ embedded (leaves) ─▶ dense model, loss, backward
                      │                               │ .grad
                      └────────────── collect ◀───────┘ ─▶ exchange between ranks ─▶ optimizer

The looked-up values are leaves of the autograd graph, so the tables need no gradients of their own.
Ranks hold every row ("replicated") or each its share ("row_wise"), with bitwise the same results.
"""

from distrain.embeddings.averaging import GAP as GAP, Averaging as Averaging
from distrain.embeddings.canonical import (
    CanonicalTensor as CanonicalTensor,
    canonical_form as canonical_form,
    canonical_state as canonical_state,
    canonical_weights as canonical_weights,
)
from distrain.embeddings.collection import (
    EmbeddingCollection as EmbeddingCollection,
    TouchedRows as TouchedRows,
    values_dtype as values_dtype,
)
from distrain.embeddings.columns import (
    PLACEMENTS as PLACEMENTS,
    Combiner as Combiner,
    TableColumn as TableColumn,
    first_of_tables as first_of_tables,
)
from distrain.embeddings.dealing import place_in_block as place_in_block
from distrain.embeddings.fixed import FixedTables as FixedTables
from distrain.embeddings.kernels import words as words
from distrain.embeddings.padded import PaddedRoutes as PaddedRoutes
from distrain.embeddings.peers import Peers as Peers, all_to_all as all_to_all
from distrain.embeddings.route import Route as Route, Traffic as Traffic
from distrain.embeddings.sparse_optimizer import SparseOptimizer as SparseOptimizer
from distrain.embeddings.store import Store as Store
