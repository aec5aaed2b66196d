"""Chooses a job's training settings for its table: batch size, epochs, optimizer, validations."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.jobs.spec.training import FEWEST_STEPS, RETRIEVAL_METRIC, batch_for
from distrain.schema.column import Tags
from distrain.schema.schema import Schema

_MANY_STEPS = 4_000
"""The total steps that a training of several epochs aims at, if there are validation rows.

Early stopping usually ends the training sooner.
"""

_MOST_EPOCHS = 60
_SEEN_OFTEN = 50
"""If the column with the most ids has fewer rows per id, a second epoch overfits its ids."""

_SEEN_OFTEN_OF_CLASSES = 5
"""`_SEEN_OFTEN` for a multiclass target, whose labels contain more information than binary ones."""

_SMALLER_OF_ONE_PASS = 2
_LEAST_BATCH = 32
"""A job of one epoch divides its batch size by `_SMALLER_OF_ONE_PASS`, but not to below this size.

Not with windows, and not for a large table (`_MANY_ROWS`). Twice as many steps learn more: AUC
+0.0007 on Criteo's rows.
"""

_VALIDATIONS = 4
_JUDGES = {"binary": "log_loss", "regression": "rmse", "multiclass": "log_loss"}
_ONCE = {"kind": "adagrad", "lr": 0.02}
_OFTEN = {"kind": "adamw", "lr": 0.001, "weight_decay": 0.1}
"""The optimizer for several epochs, which overfit more than one; `_ONCE` is that for one epoch."""

_SMOOTHING = 0.02
"""The label smoothing of multiclass tasks.

Without it, the loss of rows that a model can separate falls until logits are so large that one
wrong class costs as much as hundreds of correct ones. Test log loss of three splits of `digits`
0.154 without, 0.101 with it; of `weather`, whose classes overlap, 0.927 and 0.930, level.
"""

_PIECES = 12
_MOST_ENCODED = 80
"""The most continuous columns that a small table may have for `_PIECES` to encode them.

The pieces of many columns are mostly noise. Test AUC of 4,800 rows with 200 continuous columns, of
which 6 matter, on one split: 0.785 with pieces, 0.783 without; with `_MEMBERS` 0.794 and 0.854.
"""

_DROPOUT = 0.2

_MEMBERS = 8
_MOST_ROWS_OF_MEMBERS = 10_000
"""Tables of at most this size get `_MEMBERS` members, if the model has any.

A step then takes several times as long. Larger tables were not measured.
"""

_MANY_ROWS = 10_000_000
"""The minimum number of rows of a large table.

For a large table, averaging weights and a refit have little effect. Averages take memory, and a
refit takes as long as the training.
"""

_MOST_CROSSED = 1_024
"""The widest input for which `default_kind` chooses cross layers.

Their weight matrices have the square of the input's width as their size.
"""

_LOW_RANK = 64
"""The rank of cross layers' matrices for inputs of more than 256 values, if the table is not large.

On Criteo's rows, with an input of 690 values, the AUC is that of a full rank in half the CPU time.
"""

_OF_KIND: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # DeepFM sums products of embeddings; large initial values would dominate the sum.
    "deepfm": {"embeddings": {"init": 0.02}},
    # Cross layers and MLP both read the embeddings: better on Criteo's rows.
    "dcn_v2": {"model": {"structure": "parallel"}},
    # The newest event's vector has to represent all events, since it is made without the target.
    "sasrec": {"model": {"embedding_dim": 32}},
}
"""Settings for kinds of models: by kind, section of the spec, and field."""

_OF_RETRIEVAL: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "two_tower": {
        "model": {
            "embedding_dim": 64,
            "tower": [64],
            "normalize": True,
            "temperature": 0.1,
            "log_q": "batch",
        },
        "embeddings": {"combiner": "sqrtn"},
        "train": {"optimizer": {"kind": "adam", "lr": 0.002}},
    },
    "sasrec_retrieval": {
        "model": {"embedding_dim": 64},
        "embeddings": {"init": 0.035},
        "train": {"optimizer": {"kind": "adam", "lr": 0.003}},
    },
}

_RETRIEVAL_EPOCHS = 10
_LEAST_CANDIDATES = 1024
"""The smallest batch of two towers for retrieval.

The model compares the item of each row with the items of the other rows of the step.
"""


@dataclass(frozen=True)
class TableFacts:
    """Properties of a table that its training depends on."""

    rows: int  # training rows
    has_valid: bool  # whether there are validation rows
    # mean and standard deviation of the targets, by column
    targets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    windows: int = 1  # number of windows of the training rows
    # whether `prep` split the validation rows off the training rows, since the user named none
    valid_is_split_off: bool = False


DEFAULT_KINDS = ("mlp", "dcn_v2")
"""The kinds of models that `default_kind` chooses from."""


def default_kind(schema: Schema | None, table: TableFacts | None) -> str:
    """Return the default kind of model, `dcn_v2` or `mlp`.

    It is `dcn_v2` if the table has categorical columns, one epoch suits it (see `_epochs`), and the
    input is at most `_MOST_CROSSED` values wide. Otherwise, and without a schema, facts of the
    table or rows, it is `mlp`.
    """
    if schema is None or table is None or table.rows < 1 or not schema.categorical:
        return "mlp"
    steps = -(-table.rows // batch_for(table.rows // table.windows))
    is_of_ids = _epochs(schema, table, steps) == 1
    return "dcn_v2" if is_of_ids and _width(schema) <= _MOST_CROSSED else "mlp"


def _width(schema: Schema) -> int:
    """Return the width of the dense layers' input with embeddings of the default width, 16."""
    return 16 * len(schema.categorical) + len(schema.continuous)


def fit_to(
    document: dict[str, Any], schema: Schema, table: TableFacts, options: Collection[str] = ()
) -> None:
    """Write training settings that suit a table into a spec's document, in place.

    Nothing is changed for an empty table.

    Args:
        document: The job spec as plain values, with the sections `data`, `model`, `train`,
            `embeddings`, `evaluate` and `checkpoint`.
        schema: The table's schema.
        table: The table's properties.
        options: The names of all fields that the section `model` may have.
    """
    if table.rows < 1:
        return
    train = document["train"]
    in_order, kind = bool(document["data"].get("windows")), document["model"]["kind"]
    retrieves = is_retrieval(document["model"])
    batch = batch_for(table.rows // table.windows)
    if retrieves and kind == "two_tower":
        batch = max(batch, _LEAST_CANDIDATES)
    steps = -(-table.rows // batch)
    of_retrieval = min(_MOST_EPOCHS, max(_RETRIEVAL_EPOCHS, -(-FEWEST_STEPS // steps)))
    epochs = of_retrieval if retrieves else _epochs(schema, table, steps)
    train["epochs"] = epochs = 1 if in_order else epochs
    if epochs == 1 and not in_order and table.rows < _MANY_ROWS:
        batch = max(_LEAST_BATCH, batch // _SMALLER_OF_ONE_PASS)
        steps = -(-table.rows // batch)
    train["global_batch_size"] = batch
    if not in_order:  # with windows, the newest counts most, and training continues from it
        train["schedule"] = {"decay": "linear", "decay_start_step": epochs * steps // 2}
    train["optimizer"] = dict(_ONCE if epochs == 1 else _OFTEN)
    if table.rows < _MANY_ROWS:
        train["ema"] = 0.99
    is_small = table.rows <= _MOST_ROWS_OF_MEMBERS
    is_noisy = is_small and len(schema.continuous) > _MOST_ENCODED
    # Cross layers multiply the many pieces of numbers, so that losses begin in the hundreds.
    numbers = bool(schema.continuous) and not is_noisy and "cross_depth" not in options
    _fit_layers(document["model"], options, numbers=numbers, often=epochs > 1)
    if is_small and epochs > 1 and "members" in options:
        document["model"]["members"] = _MEMBERS
    of_kind = _OF_RETRIEVAL if retrieves else _OF_KIND
    for section, wanted in of_kind.get(kind, {}).items():
        document[section] |= wanted
    if "low_rank" in options and _width(schema) > 4 * _LOW_RANK and table.rows < _MANY_ROWS:
        document["model"]["low_rank"] = _LOW_RANK
    _fit_tasks(document, schema, table)
    of_label = "log_loss" if len(schema.select_by_tag(Tags.TARGET)) == 1 else None
    metric = judging_metric(document["model"]) or of_label
    # With windows, `evaluate.next_window` validates instead.
    if table.has_valid and metric and not in_order:
        passes = 1 if epochs > 1 else _VALIDATIONS
        document["evaluate"]["every_steps"] = max(1, steps // passes)
        train["early_stopping"] = {"metric": metric, "patience": max(_VALIDATIONS, epochs // 4)}
        document["checkpoint"]["keep_best"] = metric
        # Rows that the user named for validation are never trained. Refits of retrieval models
        # were not measured.
        if table.valid_is_split_off and not retrieves and table.rows < _MANY_ROWS:
            train["refit"] = True


def leave_out_excluded(
    document: Mapping[str, dict[str, Any]], values: Mapping[str, Mapping[str, Any]]
) -> None:
    """Remove settings that `fit_to` wrote and that values set by the user exclude.

    These are the refit, averages of the weights (`train.ema`) and, without validation rows, all
    that needs validations. If the user names the metric of the best model, it also stops training.

    Args:
        document: The job spec as plain values; changed in place.
        values: The values that the user sets, by section and field.
    """
    train = document["train"]
    data, of_train = values.get("data", {}), values.get("train", {})
    has_no_valid = not data.get("valid", True)
    never_validates = has_no_valid or not values.get("evaluate", {}).get("every_steps", True)
    is_excluded = data.get("windows") or data.get("negatives", 1) != 1 or has_no_valid
    has_plateau = of_train.get("reduce_on_plateau") is not None
    if is_excluded or has_plateau or of_train.get("audit"):
        train.pop("refit", None)
    if of_train.get("table_weight_decay"):
        train.pop("ema", None)
    if never_validates:
        train.pop("early_stopping", None)
        document["checkpoint"].pop("keep_best", None)
        document["evaluate"].pop("every_steps", None)
    elif (best := values.get("checkpoint", {}).get("keep_best")) and train.get("early_stopping"):
        train["early_stopping"]["metric"] = best
    elif metric := (of_train.get("early_stopping") or {}).get("metric"):
        document["checkpoint"]["keep_best"] = metric


def follow_length(train: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Adapt the learning rate's decay to a changed number of steps: it begins after half of them.

    Args:
        train: The section `train` that `fit_to` wrote; changed in place.
        values: The values that the user sets in it. `epochs`, `global_batch_size` and `max_steps`
            change the number of steps.
    """
    start = train.get("schedule", {}).get("decay_start_step")
    lengths = ("epochs", "global_batch_size", "max_steps")
    epochs, batch, most = (values.get(name) or train.get(name) for name in lengths)
    if not start or not all(isinstance(one, int) for one in (epochs, batch, most or 1)):
        return  # not fitted, or automatic values
    steps = 2 * start * epochs * train["global_batch_size"] / (train["epochs"] * batch)
    train["schedule"]["decay_start_step"] = round(min(steps, most or steps)) // 2


def _fit_layers(
    model: dict[str, Any], options: Collection[str], *, numbers: bool, often: bool
) -> None:
    """Set `number_pieces` and `dropout` in the section `model`, as far as the model has them.

    `numbers`: whether to set `number_pieces`, the encoding of continuous columns. `often`: whether
    there are several epochs; only then `dropout` is set.
    """
    if numbers and "number_pieces" in options:
        model["number_pieces"] = _PIECES
    if often and "dropout" in options:
        model["dropout"] = _DROPOUT


def _epochs(schema: Schema, table: TableFacts, steps: int) -> int:
    """Return the number of epochs for a table of which one epoch has `steps` steps.

    It is 1 if the column with most ids has fewer than `_SEEN_OFTEN` rows per id, or with a
    multiclass target `_SEEN_OFTEN_OF_CLASSES`, unless an epoch has less than half of
    `FEWEST_STEPS`. Otherwise the steps of all epochs are at most
    `_MANY_STEPS` or, without validation rows, twice `FEWEST_STEPS`; at least one epoch, at most
    `_MOST_EPOCHS`.
    """
    largest = max((column.cardinality or 1 for column in schema.categorical), default=1)
    kinds = {column.target_kind for column in schema.select_by_tag(Tags.TARGET)}
    often = _SEEN_OFTEN_OF_CLASSES if kinds == {"multiclass"} else _SEEN_OFTEN
    if table.rows < often * largest and steps >= FEWEST_STEPS // 2:
        return 1
    wanted = _MANY_STEPS if table.has_valid else 2 * FEWEST_STEPS
    return min(_MOST_EPOCHS, max(1, wanted // steps))


def _fit_tasks(document: dict[str, Any], schema: Schema, table: TableFacts) -> None:
    """Set `mean` and `std` of the tasks in the spec's document, where the table has them.

    Multiclass tasks get `_SMOOTHING`.
    """
    tasks = document["model"].get("tasks", {})
    for name, task in tasks.items():
        column = task.get("target") or name
        mean, std = table.targets.get(column, (0.0, 0.0))
        if task.get("kind") == "regression" and std > 0:
            task |= {"mean": mean, "std": std}
        elif task.get("kind") == "binary" and 0 < mean < 1:
            task["mean"] = mean
        elif task.get("kind") == "multiclass":
            task["label_smoothing"] = _SMOOTHING


def is_retrieval(model: Mapping[str, Any]) -> bool:
    return model["kind"] == "sasrec_retrieval" or model.get("task") == "retrieval"


def judging_metric(model: Mapping[str, Any]) -> str | None:
    """Return the metric that decides which validation is the best, given the section `model`.

    This is `recall_at_10` for retrieval, otherwise `TASK.METRIC` of the first task whose kind is
    set. `None` if there is no such task.
    """
    if is_retrieval(model):
        return RETRIEVAL_METRIC
    kinds = ((name, task["kind"]) for name, task in model.get("tasks", {}).items())
    return next((f"{name}.{_JUDGES[kind]}" for name, kind in kinds if kind), None)
