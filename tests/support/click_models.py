"""Models and networks of tests that make their tables themselves."""

from collections.abc import Iterator, Sequence

import torch

from distrain.loader.batch import Batch
from distrain.models import ClickModel, Embeddings, InputBlock
from distrain.models.blocks import Block
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.click_model import Network
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.models.heads.tasks import BinaryClassificationTask
from distrain.models.shapes import Column, Columns, Group
from distrain.schema import ColumnSchema, Schema, Tags


def model_over(
    tables: EmbeddingCollection, body: Block, continuous_names: Sequence[str] = ()
) -> ClickModel:
    """A click model of a body over tables."""
    categorical = [
        ColumnSchema(
            column.name,
            "int32",
            (Tags.CATEGORICAL,),
            cardinality=column.cardinality,
            embedding_dim=column.dim,
            is_list=column.combiner is not None,
        )
        for column in tables.columns
    ]
    continuous = [ColumnSchema(name, "float32", (Tags.CONTINUOUS,)) for name in continuous_names]
    combiners = {c.name: c.combiner for c in tables.columns if c.combiner}
    inputs = InputBlock(Schema((*categorical, *continuous)), Embeddings(None, combiners=combiners))
    return ClickModel(inputs, tables, network(inputs.shape, body))


def network(shape: Columns, body: Block) -> Network:
    """A body and one logit above it."""
    task = BinaryClassificationTask()
    task.attach(body.attach(shape))
    return Network(body, task)


def mlp_network(width: int, num_continuous: int, hidden: Sequence[int]) -> Network:
    """A perceptron over one group of embeddings of width 1, and continuous columns."""
    group = Group(1, tuple(Column(f"c{i}") for i in range(width)))
    numbers = tuple(Column(f"x{i}") for i in range(num_continuous))
    return network(Columns((group,), numbers), MLPBlock(hidden))


def batches_for(
    columns: Sequence[TableColumn],
    continuous_names: Sequence[str],
    rows: int,
    count: int,
    device: str = "cpu",
    seed: int = 2,
) -> Iterator[Batch]:
    """Random batches, with labels of 0 and 1, laid out as the loader does."""
    generator = torch.Generator().manual_seed(seed)
    names = tuple(column.name for column in columns)
    for _ in range(count):
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in columns]
        numbers = torch.randn(len(continuous_names), rows, generator=generator)
        label = torch.randint(0, 2, (rows,), generator=generator).float().to(device)
        there = torch.stack(ids).int().to(device).T
        yield Batch(there, numbers.to(device).T, label, names, tuple(continuous_names))
