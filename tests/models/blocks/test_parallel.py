"""ParallelBlock, Aggregate, shortcuts and residuals."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.blocks import Aggregate, Chain, ParallelBlock
from distrain.models.blocks.block import AGGREGATIONS, with_residual, with_shortcut
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.interaction import DotProductInteraction
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Branches, Columns, Flat, Vectors

ELEMENTWISE = {
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "product": lambda values: torch.tensor(values, dtype=torch.float64).prod().item(),
}


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(sorted(ELEMENTWISE)),
    st.integers(0, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_elementwise_equals_loop_of_vectors_and_of_branches(how, rows, count, dim, seed):
    vectors = torch.randn(
        rows, count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    expected = torch.tensor(
        [
            [ELEMENTWISE[how]([float(vectors[r, c, d]) for c in range(count)]) for d in range(dim)]
            for r in range(rows)
        ],
        dtype=torch.float64,
    ).reshape(rows, dim)
    block = Aggregate(how)
    assert block.attach(Vectors(count, dim)) == Flat(dim)
    torch.testing.assert_close(block(vectors), expected)
    branches = {str(c): vectors[:, c] for c in range(count)}
    block = Aggregate(how)
    assert block.attach(Branches(dict.fromkeys(branches, Flat(dim)))) == Flat(dim)
    torch.testing.assert_close(block(branches), expected)


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_aggregate_gradients(how, attached, check_gradients):
    block = Aggregate(how)
    attached(block, Branches({"a": Flat(3), "b": Flat(3)}))
    a, b = torch.randn(2, 4, 3, dtype=torch.float64)
    b[0, 0] = 0  # a product with a zero in it has a gradient too
    check_gradients(block, a, b, rebuild=lambda a, b: {"a": a, "b": b})


def test_stack_of_embeddings_and_a_flat_branch(columns, features, attached):
    block = ParallelBlock(
        {
            "embeddings": Filter(part="", kind="categorical"),
            "bottom": Filter(kind="continuous").connect(MLPBlock([4])),
        },
        aggregation="stack",
    )
    assert attached(block, columns) == Vectors(4, 4)
    value = features(3)
    found = block(value)
    assert torch.equal(found[:, :3], value.embedded[1])
    assert torch.equal(found[:, 3], block["bottom"](value))


def test_concat_lays_flat(columns, features, attached):
    block = Aggregate("concat")
    assert attached(block, columns) == Flat(2 + 12 + 3)
    value = features(3)
    parts = [*(group.flatten(1) for group in value.embedded), value.continuous]
    assert torch.equal(block(value), torch.cat(parts, dim=1))


def test_branches_take_the_same_input(attached):
    wide, deep = MLPBlock([2]), MLPBlock([5, 3])
    block = ParallelBlock(wide, deep)
    assert attached(block, Flat(4)) == Flat(5)
    x = torch.randn(6, 4, dtype=torch.float64)
    assert torch.equal(block(x), torch.cat([wide(x), deep(x)], dim=1))


def test_a_dictionary_names_its_branches(attached):
    block = ParallelBlock({"items": MLPBlock([2]), "train": MLPBlock([3])}, aggregation=None)
    gives = attached(block, Flat(4))
    assert gives == Branches({"items": Flat(2), "train": Flat(3)})
    found = block(torch.randn(6, 4, dtype=torch.float64))
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "items": (6, 2),
        "train": (6, 3),
    }
    assert block["train"].gives.made_by == "MLPBlock([3])"
    with pytest.raises(ModelError, match="no branch 'wide'; there are items, train"):
        block["wide"]


def test_connect_branch_shortcut_and_residual(attached):
    x = torch.randn(6, 4, dtype=torch.float64)
    first, second = MLPBlock([4]), MLPBlock([3])
    chain = first.connect_with_shortcut(second)
    assert attached(chain, Flat(4)) == Flat(7)
    assert torch.equal(chain(x), torch.cat([first(x), second(first(x))], dim=1))

    first, second = MLPBlock([4]), MLPBlock([4], "tanh")
    chain = first.connect_with_residual(second, activation="sigmoid")
    assert attached(chain, Flat(4)) == Flat(4)
    torch.testing.assert_close(chain(x), torch.sigmoid(first(x) + second(first(x))))

    first, left, right = MLPBlock([4]), MLPBlock([2]), MLPBlock([2])
    chain = first.connect_branch(left, right, aggregation="mean")
    assert attached(chain, Flat(4)) == Flat(2)
    torch.testing.assert_close(chain(x), (left(first(x)) + right(first(x))) / 2)

    first = MLPBlock([4])
    chain = first.connect_branch(MLPBlock([2]), MLPBlock([1]), aggregation=None)
    assert attached(chain, Flat(4)) == Branches({"0": Flat(2), "1": Flat(1)})


def test_residual_without_activation_and_with_a_function(attached):
    x = torch.randn(6, 4, dtype=torch.float64)
    for activation, function in ((None, lambda x: x), (torch.sin, torch.sin)):
        inner = MLPBlock([5, 4])
        block = with_residual(inner, activation)
        attached(block, Flat(4))
        torch.testing.assert_close(block(x), function(x + inner(x)))


def test_shortcut_of_a_branch_as_in_dlrm(columns, features, attached):
    inputs = ParallelBlock(
        {
            "embeddings": Filter(part="", kind="categorical"),
            "bottom_block": Filter(kind="continuous").connect(MLPBlock([4])),
        },
        aggregation=None,
    )
    dlrm = inputs.connect_with_shortcut(
        DotProductInteraction(), shortcut_filter=Filter("bottom_block")
    )
    assert attached(dlrm, columns) == Flat(4 + 6)
    value = features(2)
    bottom = inputs["bottom_block"](value)
    vectors = torch.cat([value.embedded[1], bottom[:, None]], dim=1)
    dots = [[row[i] @ row[j] for i in range(4) for j in range(i)] for row in vectors]
    expected = torch.cat([bottom, torch.stack([torch.stack(row) for row in dots])], dim=1)
    torch.testing.assert_close(dlrm(value), expected)


def test_gradients_of_parallel_blocks(attached, check_gradients):
    block = Chain(
        [with_shortcut(CrossBlock(1)), with_residual(MLPBlock([8], "tanh"), "gelu"), MLPBlock([2])]
    )
    attached(block, Flat(4))
    check_gradients(block, torch.randn(3, 4, dtype=torch.float64))


@pytest.mark.parametrize("how", ["sum", "mean", "product", "stack"])
def test_mismatched_widths_name_both_blocks(how):
    block = ParallelBlock({"wide": MLPBlock([2]), "deep": MLPBlock([8, 3])}, aggregation=how)
    message = (
        rf"'{how}' takes branches of one width: 'wide' of MLPBlock\(\[2\]\) is 2 wide, "
        r"'deep' of MLPBlock\(\[8, 3\]\) is 3 wide"
    )
    with pytest.raises(ModelError, match=message):
        block.attach(Flat(4))


def test_mismatched_residual_names_both():
    given = Flat(4, "ContinuousFeatures")
    message = (
        r"'shortcut' of ContinuousFeatures is 4 wide, "
        r"'block' of MLPBlock\(\[3\]\) is 3 wide"
    )
    with pytest.raises(ModelError, match=message):
        with_residual(MLPBlock([3])).attach(given)


def test_errors(columns):
    with pytest.raises(ModelError, match="no aggregation 'max'") as caught:
        ParallelBlock(MLPBlock([2]), aggregation="max")
    assert "concat, stack, sum, mean, product" in caught.value.hint
    with pytest.raises(ModelError, match="needs branches"):
        ParallelBlock()
    with pytest.raises(ModelError, match="and not both"):
        ParallelBlock(MLPBlock([2]), {"deep": MLPBlock([2])})
    with pytest.raises(ModelError, match="takes vectors of one width"):
        Aggregate("sum").attach(columns)
    block = MLPBlock([2])
    with pytest.raises(ModelError, match=r"of Filter already, and cannot take .* of Filter too"):
        ParallelBlock(block, block).attach(Flat(3, "Filter"))
    with pytest.raises(ModelError, match="has nothing to take"):
        Aggregate("concat").attach(Columns((), (), "InputBlock"))
