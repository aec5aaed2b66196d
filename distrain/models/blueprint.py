"""The parts of a model, before it has parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.click_model import ClickModel, Network
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import Combiner, TableColumn
from distrain.models.heads.tasks import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema.schema import Schema


class ModelContext(NamedTuple):
    """The arguments of the function that builds a named model, besides its section of the spec.

    The builders' docstrings describe the default head, which returns one logit. If `head` is given,
    its outputs replace the logit.
    """

    schema: Schema
    combiners: Mapping[str, Combiner]  # by the name of a list column
    head: Task | None = None  # `None` for one binary target, the default head of each model

    def inputs(self, width: int | None, *more: Embeddings) -> InputBlock:
        """Return the block of all columns, with embeddings of this width and the tables `more`.

        `None` gives each column its own width; see `Embeddings`.
        """
        return InputBlock(self.schema, Embeddings(width, combiners=self.combiners), *more)

    @property
    def task(self) -> Task:
        return self.head or BinaryClassificationTask()


class TableFactory(Protocol):
    """Creates the embedding tables, and decides which ranks hold their rows.

    It is called with some arguments of `EmbeddingCollection`, which is itself such a factory.
    """

    def __call__(
        self, columns: Sequence[TableColumn], *, generator: torch.Generator | None
    ) -> EmbeddingCollection: ...


@dataclass(frozen=True)
class Blueprint:
    """The parts of a model. `body` and `task` have no parameters until `build` attaches them."""

    inputs: InputBlock
    body: Block
    task: Task

    def build(self, *, seed: int, make_tables: TableFactory = EmbeddingCollection) -> ClickModel:
        """Create the model on the CPU; the same arguments give bitwise the same parameters.

        Torch's global random state is neither read nor changed. `make_tables` decides which ranks
        hold the tables' rows; the values of the rows do not depend on it.

        Raises:
            ModelError: A block does not accept the output of the previous one.
        """
        generator = torch.Generator().manual_seed(seed % 2**63)
        dense_seed = int(torch.randint(2**63 - 1, (), generator=generator))
        embeddings = make_tables(self.inputs.columns, generator=generator)
        with torch.random.fork_rng(devices=[]):
            # Layers draw from the default generator; torch.manual_seed would reseed GPUs as well.
            torch.default_generator.manual_seed(dense_seed)
            network = self._network()
        return ClickModel(self.inputs, embeddings, network)

    def check(self) -> int:
        """Check that the model can be built, without memory for parameters.

        Returns the number of values of all dense parameters. The blueprint cannot be used again.

        Raises:
            ModelError: A block does not accept the output of the previous one, or a layer has more
                values than fit any memory.
        """
        return sum(parameter.numel() for parameter in self.outline().parameters())

    def outline(self) -> Network:
        """Return the network on torch's device `meta`, without memory for its parameters.

        The blueprint cannot be used again. Raises the errors of `check`.
        """
        try:
            with torch.device("meta"):
                return self._network()
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise ModelError(
                "a layer of the model is larger than any memory",
                hint="Lower the widths of the model section's layers.",
            ) from None

    def _network(self) -> Network:
        self.task.attach(self.body.attach(self.inputs.shape))
        events, draws = self.inputs.shape.events, self.inputs.draws is not None
        return Network(self.body, self.task, self.inputs.takes_continuous, events, draws=draws)
