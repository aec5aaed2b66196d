"""What every model here is: embedding tables and a dense part."""

from collections.abc import Sequence

from torch import Tensor, nn

from distrain.batch import Batch
from distrain.embeddings import EmbeddingCollection
from distrain.errors import SchemaError


class ClickModel(nn.Module):
    """Embedding tables and a dense module that turns their values into logits.

    The two are apart because they train apart: `dense` by a torch optimizer (and behind
    `DistributedDataParallel`, where there are ranks), the tables by a `SparseOptimizer`.

    Args:
        embeddings: The tables of the categorical columns, those of lists among them.
        dense: `dense(embedded, continuous) -> logits`, where `embedded` is what
            `embeddings.lookup` returns, `continuous` is `[rows, num_continuous]` and the logits are
            `[rows]`.
        continuous_names: The continuous columns, in the order that `dense` expects.
    """

    def __init__(
        self, embeddings: EmbeddingCollection, dense: nn.Module, continuous_names: Sequence[str]
    ):
        super().__init__()
        self.embeddings = embeddings
        self.dense = dense
        self.continuous_names = tuple(continuous_names)

    def forward(self, batch: Batch) -> Tensor:
        """The logits of a batch, `[rows]`; 0 rows are allowed.

        Raises:
            SchemaError: The batch has other columns, or the same ones in another order.
        """
        self.check_columns(batch)
        embedded = self.embeddings.lookup(batch.categorical, batch.lists)
        logits: Tensor = self.dense(embedded, batch.continuous)
        return logits

    def check_columns(self, batch: Batch) -> None:
        """Raise if the batch's columns are not the model's.

        Raises:
            SchemaError: The batch has other columns, or the same ones in another order (of list
                columns, which are found by name, any order will do).
        """
        for kind, given, needed in (
            ("categorical", batch.categorical_names, self.embeddings.names),
            ("continuous", batch.continuous_names, self.continuous_names),
            ("list", tuple(sorted(batch.lists)), tuple(sorted(self.embeddings.list_names))),
        ):
            if given != needed:
                raise SchemaError(
                    f"the batch's {kind} columns are not the model's",
                    where={"batch": ", ".join(given), "model": ", ".join(needed)},
                    hint="Read the data with the schema that the model was built or saved with.",
                )
