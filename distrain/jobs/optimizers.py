"""The kinds of optimizers: how each updates tables and dense parameters, and its state.

`OPTIMIZERS` and `OptimizerKind` are the only lists of the kinds. The job spec, the memory plans,
the kernels, checkpoints and torch's optimizer of the dense layers read `OPTIMIZERS`. A kind has two
halves:

- an *update rule*, by which `embeddings.SparseOptimizer` changes the touched rows of tables;
  `models/embeddings/kernels` computes it, in C, torch and Triton;
- a class of `torch.optim` for the dense layers.

A new kind with an existing rule needs an entry in `OPTIMIZERS` and one in `OptimizerKind`. A new
rule also needs an entry in `UPDATE_RULES`, and a formula in each of the kernels' files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from distrain.errors import InputError

OptimizerKind = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "adamw"]
"""The values of `train.optimizer.kind`: the keys of `OPTIMIZERS`."""

STATE_BYTES = 4
"""Bytes of an optimizer state value: float32 for every storage type of the weights."""


@dataclass(frozen=True)
class UpdateRule:
    """How a step changes the touched rows of a table."""

    # state tensors of the table's shape, in the order in which the kernels take them
    state: tuple[str, ...] = ()
    row_state: tuple[str, ...] = ()  # state tensors with one value per row
    accumulators: tuple[str, ...] = ()  # state tensors that start at `initial_accumulator_value`
    eps: float = 0.0  # added to denominators where the spec has null
    bias_correction: bool = False  # whether the learning rate gets Adam's bias correction

    def state_bytes(self, dim: int) -> int:
        """Return the bytes of optimizer state for an embedding row of `dim` values.

        >>> [rule.state_bytes(16) for rule in UPDATE_RULES.values()]
        [0, 64, 4, 128]
        """
        return STATE_BYTES * (len(self.state) * dim + len(self.row_state))


# eps is torch's default; for the row-wise rule it is fbgemm's.
UPDATE_RULES: dict[str, UpdateRule] = {
    "sgd": UpdateRule(),
    "adagrad": UpdateRule(state=("sum",), accumulators=("sum",), eps=1e-10),
    "rowwise_adagrad": UpdateRule(row_state=("row_sum",), accumulators=("row_sum",), eps=1e-8),
    "adam": UpdateRule(state=("exp_avg", "exp_avg_sq"), eps=1e-8, bias_correction=True),
}
"""The rules that the kernels implement, by name."""


@dataclass(frozen=True)
class OptimizerFacts:
    """How a kind of optimizer updates tables and dense parameters."""

    rule: str  # the update rule of tables: a key of `UPDATE_RULES`
    dense_class: str  # the optimizer of the dense parameters: a class in `torch.optim`
    # the arguments of that class for which the spec's section has fields, with the values used if
    # the field is null
    dense_options: Mapping[str, Any]
    dense_state: int  # optimizer state values per dense parameter element

    @property
    def update_rule(self) -> UpdateRule:
        return UPDATE_RULES[self.rule]


_ADAGRAD = {"eps": 1e-10, "initial_accumulator_value": 0.0}

# Row-wise Adagrad is about rows of tables: dense parameters, which have none, get Adagrad.
OPTIMIZERS: dict[str, OptimizerFacts] = {
    "sgd": OptimizerFacts("sgd", "SGD", {}, 0),
    "adagrad": OptimizerFacts("adagrad", "Adagrad", _ADAGRAD, 1),
    "rowwise_adagrad": OptimizerFacts("rowwise_adagrad", "Adagrad", _ADAGRAD, 1),
    "adam": OptimizerFacts("adam", "Adam", {"betas": (0.9, 0.999), "eps": 1e-8}, 2),
    # Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", Algorithm 2. Only dense
    # parameters decay: a decay of tables would change every row in every step.
    "adamw": OptimizerFacts(
        "adam", "AdamW", {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, 2
    ),
}
"""All kinds, by the name that the job spec gives them."""


def optimizer_facts(kind: str) -> OptimizerFacts:
    """Return the entry of a kind in `OPTIMIZERS`.

    Raises:
        InputError: There is no such kind.
    """
    if kind not in OPTIMIZERS:
        raise InputError(
            f"unknown optimizer {kind!r}", hint=f"Allowed: {', '.join(sorted(OPTIMIZERS))}."
        )
    return OPTIMIZERS[kind]


def kind_of_least_state() -> str:
    """Return the kind with the least state per embedding row, among the kinds that have state.

    >>> kind_of_least_state()
    'rowwise_adagrad'
    """
    sizes = {
        kind: (len(facts.update_rule.state), len(facts.update_rule.row_state))
        for kind, facts in OPTIMIZERS.items()
    }
    return min((kind for kind, size in sizes.items() if any(size)), key=lambda kind: sizes[kind])
