"""Tasks that share: each against a plain torch copy of its paper's formula, in float64."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.blocks import MLPBlock, MMoEBlock, PLEBlock
from distrain.models.heads import (
    BinaryClassificationTask,
    ESMMTask,
    MulticlassTask,
    MultiTask,
    RegressionTask,
)
from distrain.models.shapes import Flat

NAMES = ("clicked", "genre", "price")


def tasks():
    return {
        "clicked": BinaryClassificationTask("clicked"),
        "genre": MulticlassTask("genre", 4),
        "price": RegressionTask("price", "mae"),
    }


def expert(network, x):
    for layer in network.layers:
        x = layer(x)
    return x


def mixed(gate, x, experts):
    scores = x @ gate.weight.T
    shares = scores.exp() / scores.exp().sum(1, keepdim=True)
    return sum(shares[:, i : i + 1] * value for i, value in enumerate(experts))


def naive_mmoe(block, x):
    experts = [expert(one, x) for one in block.experts.networks]
    return {n: mixed(g, x, experts) for n, g in zip(block.names, block.gates, strict=True)}


def naive_ple(block, x):
    own, shared = dict.fromkeys(block.names, x), x
    for layer in block.layers:
        of_shared = [expert(one, shared) for one in layer.shared.networks]
        of_tasks = {
            name: [expert(one, own[name]) for one in experts.networks]
            for name, experts in zip(block.names, layer.experts, strict=True)
        }
        *gates, last = layer.gates if len(layer.gates) > len(block.names) else [*layer.gates, None]
        following = {
            name: mixed(gate, own[name], of_tasks[name] + of_shared)
            for name, gate in zip(block.names, gates, strict=True)
        }
        if last is not None:
            every = [value for values in of_tasks.values() for value in values]
            shared = mixed(last, shared, every + of_shared)
        own = following
    return own


BLOCKS = {
    "mmoe": (lambda: MMoEBlock(NAMES, 3, (6, 4)), naive_mmoe),
    "cgc": (lambda: PLEBlock(NAMES, 1, 2, 1, (4,)), naive_ple),
    "ple": (lambda: PLEBlock(NAMES, 3, 2, 2, (4,)), naive_ple),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_equal_their_formulas(name, attached):
    make, naive = BLOCKS[name]
    block = make()
    given = attached(block, Flat(5)).shapes
    assert given == dict.fromkeys(NAMES, Flat(4))
    for rows in (0, 1, 9):
        x = torch.randn(rows, 5, dtype=torch.float64)
        torch.testing.assert_close(block(x), naive(block, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["shared_bottom", *BLOCKS])
def test_tasks_take_their_branches_through_their_towers(name, batch, attached):
    sharing = None if name == "shared_bottom" else BLOCKS[name][0]()
    given = tasks()
    towers = {"price": MLPBlock([3])}
    head = MultiTask(given, {"genre": 0.5}, sharing=sharing, towers=towers)
    attached(head, Flat(5))
    x = torch.randn(9, 5, dtype=torch.float64)
    shared = dict.fromkeys(NAMES, x) if sharing is None else BLOCKS[name][1](sharing, x)
    parts = head.outputs(head(x))
    tower = expert(towers["price"], shared["price"])
    torch.testing.assert_close(parts["price"], given["price"].number(tower)[:, 0])
    torch.testing.assert_close(parts["genre"], given["genre"].logit(shared["genre"]))
    rows = batch(9)
    z = parts["clicked"]
    expected = torch.stack(
        [
            functional.binary_cross_entropy(z.sigmoid(), rows["clicked"], reduction="sum"),
            0.5
            * functional.nll_loss(
                parts["genre"].log_softmax(1), rows["genre"].long(), reduction="sum"
            ),
            (parts["price"] - rows["price"]).abs().sum(),
        ]
    )
    torch.testing.assert_close(head.losses(head(x), rows), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(head.loss(head(x), rows), expected.sum())
    kinds = [(target.name, target.kind) for target in head.targets]
    assert kinds == [("clicked", "binary"), ("genre", "multiclass"), ("price", "regression")]
    assert [tuple(score.shape) for score in head.scores(head(x))] == [(9,), (9, 4), (9,)]


def test_esmm_is_the_product_of_its_probabilities(batch, attached):
    click, bought, rated = (BinaryClassificationTask(name) for name in ("clicked", "b", "r"))
    head = ESMMTask({"click": click, "bought": bought, "rated": rated})
    attached(head, Flat(3))
    x = torch.randn(50, 3, dtype=torch.float64)
    p = [task(x).sigmoid() for task in (click, bought, rated)]
    found = [score.sigmoid() for score in head.scores(head(x))]
    for ours, expected in zip(found, (p[0], p[0] * p[1], p[0] * p[1] * p[2]), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-14)


def test_esmm_joins_logits_of_bfloat16_in_float32():
    head = ESMMTask({n: BinaryClassificationTask(n, layer=False) for n in ("a", "b")})
    head.is_parted = False
    found = head._outputs(torch.tensor([[3.0], [0.0]]).bfloat16())[1]
    expected = head._outputs(torch.tensor([[3.0], [0.0]]))[1]
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@settings(deadline=None)
@given(st.floats(-80, 80), st.floats(-80, 80))
def test_esmm_loses_nothing_to_rounding(first, second):
    """float32 logits, whose probabilities round to 0 and 1, against log-space in float64."""
    head = ESMMTask({n: BinaryClassificationTask(n, layer=False) for n in ("a", "b")})
    head.names, head.is_parted = ("a", "b"), True
    head.widths = (1, 1)
    pair = torch.tensor([[first], [second]], dtype=torch.float32)
    z = head._outputs({"a": pair[0][:, None], "b": pair[1][:, None]})[1]
    a, b = pair.double()
    log_p = functional.logsigmoid(a) + functional.logsigmoid(b)
    log_not = torch.logaddexp(
        functional.logsigmoid(-a), functional.logsigmoid(a) + functional.logsigmoid(-b)
    )
    torch.testing.assert_close(z.double(), log_p - log_not, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["mse", "mae", "huber", "poisson"])
def test_losses_of_regressions(kind, batch, attached):
    task = RegressionTask("price", kind, delta=1.5)
    attached(task, Flat(3))
    rows = batch(20)
    rows.labels[:, 2].abs_()
    output = task(torch.randn(20, 3, dtype=torch.float64))
    error = output - rows["price"]
    small = error.abs() <= 1.5
    each = {
        "mse": error**2,
        "mae": error.abs(),
        "huber": torch.where(small, error**2 / 2, 1.5 * (error.abs() - 0.75)),
        "poisson": output.exp() - rows["price"] * output,
    }[kind]
    torch.testing.assert_close(task.loss(output, rows), each.sum(), rtol=1e-12, atol=1e-12)
    score = output.exp() if kind == "poisson" else output
    assert torch.equal(task.scores(output)[0], score)


def test_what_cannot_share_is_refused(wording):
    wording.refused(
        ModelError,
        lambda: ESMMTask({"clicked": BinaryClassificationTask(), "price": RegressionTask("price")}),
        lambda: ESMMTask({"clicked": BinaryClassificationTask()}),
        lambda: MultiTask(tasks(), towers={"other": MLPBlock([2])}),
        lambda: MMoEBlock(NAMES, 0),
        lambda: PLEBlock((), shared_experts=0),
    )
