"""ParallelBlock, Aggregate, shortcuts and residuals."""

from functools import partial

import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.blocks import Aggregate, ParallelBlock
from distrain.models.blocks.block import with_residual
from distrain.models.blocks.filter import Filter
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


def test_a_product_with_a_zero_has_a_gradient(attached, check_gradients):
    block = Aggregate("product")
    attached(block, Branches({"a": Flat(3), "b": Flat(3)}))
    a, b = torch.randn(2, 4, 3, dtype=torch.float64)
    b[0, 0] = 0
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


def test_blocks_that_do_not_fit_together_are_refused(columns, wording):
    def joined(how):
        return ParallelBlock({"wide": MLPBlock([2]), "deep": MLPBlock([8, 3])}, aggregation=how)

    block = MLPBlock([2])
    for how in ("sum", "mean", "product", "stack"):
        wording.refused(ModelError, partial(joined(how).attach, Flat(4)))
    wording.refused(
        ModelError,
        lambda: with_residual(MLPBlock([3])).attach(Flat(4, "ContinuousFeatures")),
        lambda: ParallelBlock(MLPBlock([2]), aggregation="max"),
        lambda: ParallelBlock(),
        lambda: ParallelBlock(MLPBlock([2]), {"deep": MLPBlock([2])}),
        lambda: ParallelBlock({"items": MLPBlock([2])})["wide"],
        lambda: Aggregate("sum").attach(columns),
        lambda: ParallelBlock(block, block).attach(Flat(3, "Filter")),
        lambda: Aggregate("concat").attach(Columns((), (), "InputBlock")),
    )
