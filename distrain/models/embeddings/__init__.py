"""Embedding tables whose training step reads and updates only the rows of a batch.

The cost of a step does not depend on the size of the tables.
"""

from distrain.models.embeddings.averaging import Averaging as Averaging
from distrain.models.embeddings.collection import EmbeddingCollection as EmbeddingCollection
from distrain.models.embeddings.columns import TableColumn as TableColumn
from distrain.models.embeddings.peers import Peers as Peers
from distrain.models.embeddings.sparse_optimizer import SparseOptimizer as SparseOptimizer
