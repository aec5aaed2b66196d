"""Builds a model from a schema and a model section of a job spec."""

from collections.abc import Mapping
from dataclasses import replace

from distrain.jobs.spec.models.kinds import ModelSpec
from distrain.jobs.spec.tasks import TaskSpec
from distrain.models.blocks.filter import PiecewiseLinear
from distrain.models.blocks.members import MemberMLP
from distrain.models.blueprint import Blueprint, ModelContext, TableFactory
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import Combiner
from distrain.models.heads.members import MemberTask
from distrain.models.heads.named_head import leaf_of, named_head
from distrain.models.heads.tasks import BinaryClassificationTask, LabelTask, Task
from distrain.models.zoo import MODELS
from distrain.schema.column import Tags
from distrain.schema.schema import Schema


def build_model(
    schema: Schema,
    spec: ModelSpec,
    *,
    seed: int,
    make_tables: TableFactory = EmbeddingCollection,
    combiners: Mapping[str, Combiner] | None = None,
) -> ClickModel:
    """Build a model on the CPU; the same arguments give bitwise the same parameters.

    The inputs are the schema's categorical and continuous columns in schema order, without the
    target; some models use only a part of them. A categorical list column has one embedding per
    row, the combination of its ids' embeddings, unless its combiner is "sequence". Torch's global
    random state is neither read nor changed.

    Args:
        schema: Each categorical column needs its cardinality.
        spec: The model section. Its `embedding_dim` overrides that of columns. If it is `None`,
            a column has its own, or else `infer_embedding_dim(cardinality)`.
        seed: Seed of all initial parameters.
        make_tables: Decides which ranks hold the tables' rows; the values do not depend on it.
        combiners: The combiner of each list column; the mean by default.

    Raises:
        SchemaError: A cardinality is missing (all such columns are listed), a continuous list
            column is not a field of an event, or a combiner is for a column without lists.
        ModelError: The columns do not suit the model: for example, there are too few.
    """
    return blueprint_of(schema, spec, combiners).build(seed=seed, make_tables=make_tables)


def blueprint_of(
    schema: Schema, spec: ModelSpec, combiners: Mapping[str, Combiner] | None = None
) -> Blueprint:
    tasks: Mapping[str, TaskSpec] = getattr(spec, "tasks", {})
    head = named_head(schema, tasks, spec.sharing) if hasattr(spec, "sharing") else None
    blueprint = MODELS[spec.kind](ModelContext(schema, combiners or {}, head), spec)
    _name(blueprint.task, schema, tasks)
    if isinstance(blueprint.body, MemberMLP):
        blueprint = replace(blueprint, task=MemberTask(blueprint.task))
    pieces = getattr(spec, "number_pieces", 0)
    if pieces and blueprint.inputs.shape.continuous:
        return replace(blueprint, body=PiecewiseLinear(pieces).connect(blueprint.body))
    return blueprint


def _name(task: Task, schema: Schema, tasks: Mapping[str, TaskSpec]) -> None:
    targets = schema.select_by_tag(Tags.TARGET).names
    if isinstance(task, LabelTask) and len(tasks) == 1:
        ((task.name, only),) = tasks.items()
        leaf = leaf_of(schema, task.name, only)
        task.target, task.weight, task.known = leaf.target, leaf.weight, leaf.known
        if isinstance(task, BinaryClassificationTask):  # the default head of the model
            task.mean, task.label_smoothing = only.mean, only.label_smoothing
    elif targets and not task.name:
        task.name = task.target or targets[0]
        if isinstance(task, LabelTask):
            task.known = schema[task.name].known
