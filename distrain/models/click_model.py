"""The structure of every model: inputs, tables, and a network."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.loader.batch import Batch, Ragged
from distrain.models.blocks.block import Block
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.heads.scores import mean_scores, one_against_rest
from distrain.models.heads.tasks import Task
from distrain.models.inputs import InputBlock
from distrain.models.shapes import EventLists, Events, EventValues, Features


class Network(nn.Module):
    """A model without its tables: `(embedded, continuous, lists) -> output`.

    `task` is attached to `body`, and `body` to the shape of the inputs, including continuous
    columns if `takes_continuous`. The embeddings come from `EmbeddingCollection.lookup`, and the
    lists from `InputBlock.event_lists`. With `draws`, the last of `embedded` has the embeddings of
    the items that were drawn as negatives.

    Attributes:
        logit_shift: Added to the first target's logits by `logits` and `scores`, but not in the
            loss: the log of the sampled share of negatives (Dal Pozzolo et al., "Calibrating
            Probability with Undersampling", 2015).
        embedding_dropout: The share of embedding values that training sets to 0.
    """

    def __init__(
        self,
        body: Block,
        task: Task,
        takes_continuous: bool = True,
        events: tuple[Events, ...] = (),
        *,
        draws: bool = False,
    ):
        super().__init__()
        self.body = body
        self.task = task
        self._takes_continuous = takes_continuous
        self._events = tuple(tuple(one.lists) for one in events)
        self._draws = draws
        self._num_sequences = sum(map(len, self._events)) + draws
        self.logit_shift = 0.0
        self.embedding_dropout = 0.0

    def forward(
        self,
        embedded: tuple[Tensor, ...],
        continuous: Tensor,
        lists: tuple[EventLists, ...] = (),
    ) -> Tensor:
        output: Tensor = self.task(self.body(self.features(embedded, continuous, lists)))
        return output

    def features(
        self,
        embedded: tuple[Tensor, ...],
        continuous: Tensor,
        lists: tuple[EventLists, ...] = (),
    ) -> Features:
        """Return the input of the body: embeddings, continuous columns and events.

        Applies `embedding_dropout` in training. The continuous columns are left out unless
        `takes_continuous`.
        """
        taken = continuous if self._takes_continuous else continuous[:, :0]
        if self.training and self.embedding_dropout:
            share = self.embedding_dropout
            embedded = tuple(functional.dropout(values, share) for values in embedded)
        num_groups = len(embedded) - self._num_sequences
        sequences = embedded[num_groups:]
        events = tuple(
            EventValues(tuple(sequences[place] for place in places), numbers, offsets, *on_host)
            for places, (offsets, numbers, *on_host) in zip(self._events, lists, strict=True)
        )
        drawn = sequences[-1] if self._draws else None
        return Features(tuple(embedded[:num_groups]), taken, events, drawn)

    @property
    def only_multiplies(self) -> bool:
        """Whether the body uses embeddings only in matrix products; see `Block.only_multiplies`.

        False if the body's class is not in `distrain.models`, or if there is embedding dropout.
        """
        is_ours = type(self.body).__module__.startswith("distrain.models.")
        return is_ours and self.body.only_multiplies and not self.embedding_dropout

    def logits(self, output: Tensor) -> Tensor:
        """Return the first target's logits, `[rows]`, corrected for sampled negatives."""
        return self._shifted(self.task.logits(output))

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        """Return each target's scores; the first target's are corrected for sampled negatives."""
        first, *others = self.task.scores(output)
        return (self._shifted(first), *others)

    def _shifted(self, logits: Tensor) -> Tensor:
        return logits + self.logit_shift if self.logit_shift else logits


class ClickModel(nn.Module):
    """Embedding tables, and a network over their values.

    Tables and network are separate because they are trained separately: `dense` by a torch
    optimizer, the tables by a `SparseOptimizer`. `inputs` has the tables' columns and extracts the
    ids of a batch.

    Attributes:
        continuous_names: The continuous columns, in the order that `dense` expects.
    """

    def __init__(self, inputs: InputBlock, embeddings: EmbeddingCollection, dense: Network):
        super().__init__()
        self.inputs = inputs
        self.embeddings = embeddings
        self.dense = dense
        self.continuous_names = inputs.continuous_names

    @property
    def task(self) -> Task:
        return self.dense.task

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of a batch for the first target, `[rows]`; 0 rows are allowed.

        Raises:
            SchemaError: The batch has other columns, or the same columns in another order.
        """
        return self.dense.logits(self.output(batch))

    def scores(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the scores of a batch for each of the task's targets; raises like `forward`."""
        return self.dense.scores(self.output(batch))

    def output(self, batch: Batch) -> Tensor:
        """Return the output of the model's task for a batch; raises like `forward`."""
        self.check_columns(batch)
        embedded = self.embeddings.lookup(*self.table_ids(batch))
        output: Tensor = self.dense(embedded, batch.continuous, self.inputs.event_lists(batch))
        return output

    def table_ids(self, batch: Batch) -> tuple[Tensor, Mapping[str, Ragged]]:
        """Return the ids of a batch, and its lists of ids; see `InputBlock.table_ids`."""
        return self.inputs.table_ids(batch)

    def check_columns(self, batch: Batch) -> None:
        """Raise SchemaError if the batch's columns are not the model's; see `InputBlock`."""
        self.inputs.check_columns(batch)


class Ensemble(ClickModel):
    """Models of the same columns and targets, which score as one model; it cannot be trained.

    Its scores are those of the mean probabilities (`mean_scores`). By Jensen's inequality, the log
    loss of these is at most the mean of the members' log losses. The sum of the mean probabilities
    is the mean of the members' sums. Neither holds for the mean of logits.

    Attributes:
        members: The models, at least one.
    """

    members: Sequence[ClickModel]

    def __init__(self, members: Sequence[ClickModel]):
        nn.Module.__init__(self)
        self.members = cast(Any, nn.ModuleList(members))
        self.inputs = members[0].inputs
        self.continuous_names = members[0].continuous_names

    def __getattr__(self, name: str) -> Any:
        if name in ("embeddings", "dense"):
            raise ModelError(
                "an ensemble has no tables and no network of its own",
                hint="Use one of its members, which are in its model folder as `0`, `1`, ...",
            )
        return super().__getattr__(name)

    @property
    def task(self) -> Task:
        return self.members[0].task

    def forward(self, batch: Batch) -> Tensor:
        return one_against_rest(self.scores(batch)[0])

    def scores(self, batch: Batch) -> tuple[Tensor, ...]:
        return mean_scores(self.task.targets, [one.scores(batch) for one in self.members])
