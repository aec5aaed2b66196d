"""From a schema and a model section of a job spec to a model."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from distrain.embeddings import EmbeddingCollection, TableColumn
from distrain.embeddings.columns import Combiner
from distrain.errors import SchemaError
from distrain.models.click import ClickModel
from distrain.models.dlrm import DlrmDense
from distrain.models.mlp import MlpDense
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.spec import DlrmSpec, ModelSpec


class TableFactory(Protocol):
    """Makes the tables, wherever their rows shall live; `EmbeddingCollection` itself is one."""

    def __call__(
        self, columns: Sequence[TableColumn], *, generator: torch.Generator | None
    ) -> EmbeddingCollection:
        """The tables of the columns, their initial values drawn from the generator."""
        ...


def build_model(
    schema: Schema,
    spec: ModelSpec,
    *,
    seed: int,
    make_tables: TableFactory = EmbeddingCollection,
    combiners: Mapping[str, Combiner] | None = None,
) -> ClickModel:
    """Build a model on the CPU; the same arguments give bitwise the same parameters.

    The inputs are the schema's categorical and continuous columns in schema order; the target is
    left out. A categorical column of lists gives one embedding a row, at its place in the schema
    among the others: its ids' embeddings, combined. Torch's global random state is neither read nor
    changed.

    Args:
        schema: Each categorical column needs its cardinality.
        spec: Which model, and its sizes. `embedding_dim` there outranks the columns' own; where it
            is `None`, a column without one gets `infer_embedding_dim(cardinality)`.
        seed: Of all initial parameters.
        make_tables: Decides where the tables' rows live; their values do not depend on it.
        combiners: For columns of lists, how the embeddings of a row's ids become one; those that
            are not named take the mean.

    Raises:
        SchemaError: A cardinality is missing (all such columns are listed), a continuous column
            holds lists, a combiner is for a column that does not, or there are too few columns for
            the model.
    """
    features = schema.remove_by_tag(Tags.TARGET)
    check_features(features, spec)
    found = _combiners(features, combiners or {})
    generator = torch.Generator().manual_seed(seed % 2**63)
    dense_seed = int(torch.randint(2**63 - 1, (), generator=generator))
    columns = [
        TableColumn(c.name, c.cardinality or 1, embedding_dim(c, spec), found[c.name])
        for c in features.categorical
    ]
    embeddings = make_tables(columns, generator=generator)
    with torch.random.fork_rng(devices=[]):
        # Layers draw from the default generator; torch.manual_seed would reseed the GPUs as well.
        torch.default_generator.manual_seed(dense_seed)
        dense = _dense(columns, len(features.continuous), spec)
    return ClickModel(embeddings, dense, features.continuous.names)


def infer_embedding_dim(cardinality: int) -> int:
    """A width for a column's embeddings: `min(16, round(1.6 * cardinality**0.56))`.

    fastai's rule (`emb_sz_rule` in fastai/tabular/model.py), capped at the 16 of the NVTabular
    notebooks instead of at 600.

    >>> [infer_embedding_dim(c) for c in (1, 4, 63, 10_000_000)]
    [2, 3, 16, 16]
    """
    return min(16, round(1.6 * math.pow(cardinality, 0.56)))


def embedding_dim(column: ColumnSchema, spec: ModelSpec) -> int:
    """The width of a column's embeddings: the model's, else the column's own, else inferred."""
    return (
        spec.embedding_dim or column.embedding_dim or infer_embedding_dim(column.cardinality or 1)
    )


def _combiners(features: Schema, given: Mapping[str, Combiner]) -> dict[str, Combiner | None]:
    """Each categorical column's combiner; `None` where a row holds one id."""
    flat = [
        name for name in given if name not in features.categorical or not features[name].holds_lists
    ]
    if flat:
        raise SchemaError(
            f"combiners are for categorical columns of lists, which these are not: "
            f"{', '.join(flat)}",
        )
    return {
        column.name: given.get(column.name, "mean") if column.holds_lists else None
        for column in features.categorical
    }


def _dense(columns: list[TableColumn], num_continuous: int, spec: ModelSpec) -> nn.Module:
    if isinstance(spec, DlrmSpec):
        return DlrmDense(len(columns), spec.embedding_dim, num_continuous, spec.bottom, spec.top)
    return MlpDense(sum(column.dim for column in columns), num_continuous, spec.hidden)


def check_features(features: Schema, spec: ModelSpec) -> None:
    """Refuse columns of which a model cannot be built.

    Raises:
        SchemaError: A cardinality is missing (all such columns are listed), a continuous column
            holds lists, or there are too few columns for the model.
    """
    unknown = [c.name for c in features.categorical if c.cardinality is None]
    if unknown:
        raise SchemaError(
            f"no cardinality is known for: {', '.join(unknown)}",
            hint="Prepare the data with `distrain prep`, which writes it to the schema, "
            "or set the columns' cardinality there.",
        )
    lists = [c.name for c in features.continuous if c.holds_lists]
    if lists:
        raise SchemaError(
            f"continuous columns of lists cannot be model inputs: {', '.join(lists)}",
            hint="Leave them out of the schema, or reduce each list to one value. "
            "Lists of ids can be inputs: tag them `categorical`.",
        )
    num_categorical, num_continuous = len(features.categorical), len(features.continuous)
    if num_categorical + num_continuous == 0:
        raise SchemaError(
            "the schema has no inputs for a model",
            hint="Tag its columns `categorical` or `continuous`.",
        )
    if isinstance(spec, DlrmSpec) and num_categorical + (num_continuous > 0) < 2:
        raise SchemaError(
            "dlrm needs at least two vectors to interact: two categorical columns, "
            "or one and continuous ones",
            hint="Use `model: {kind: mlp}`.",
        )
