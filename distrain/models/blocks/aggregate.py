"""Several values into one: side by side, stacked, added, averaged, multiplied."""

import functools
import operator
from collections.abc import Callable, Sequence

from torch import Tensor

from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.shapes import (
    Branches,
    Flat,
    Shape,
    Value,
    flat,
    some_width,
    stacked,
    vectors_of,
    vectors_of_branch,
)


def _added(pieces: Sequence[Tensor]) -> Tensor:
    return functools.reduce(operator.add, pieces)


def _averaged(pieces: Sequence[Tensor]) -> Tensor:
    return _added(pieces) / len(pieces)


def _multiplied(pieces: Sequence[Tensor]) -> Tensor:
    # torch.prod's gradient looks for zeros, and waits for the device to know them.
    return functools.reduce(operator.mul, pieces)


_ELEMENTWISE: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "sum": _added,
    "mean": _averaged,
    "product": _multiplied,
}

AGGREGATIONS = ("concat", "stack", *_ELEMENTWISE)


class Aggregate(Block):
    """The branches, or the vectors of a row, made one.

    Args:
        how: "concat" lays everything flat, side by side. "stack" makes every flat branch a vector
            beside the vectors of the others. "sum", "mean" and "product" work element by element on
            the branches, each laid flat, or on the vectors; the product of a user's and an item's
            vector is generalised matrix factorisation (arXiv:1708.05031).

    Shape:
        branches or vectors to `[rows, width]`, or `[rows, count, dim]` if stacked.

    Raises:
        ModelError: There is no such aggregation.

    >>> import torch
    >>> pair = {"user": torch.tensor([[1.0, 2.0]]), "item": torch.tensor([[3.0, 4.0]])}
    >>> product = Aggregate("product")
    >>> str(product.attach(Branches({"user": Flat(2), "item": Flat(2)})))
    '[rows, 2]'
    >>> product(pair)
    tensor([[3., 8.]])
    """

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        if how not in AGGREGATIONS:
            raise ModelError(
                f"there is no aggregation {how!r}",
                hint=f"Take one of {', '.join(AGGREGATIONS)}; a ParallelBlock with None gives a "
                "dictionary.",
            )

    @property
    def label(self) -> str:
        """See `Block`."""
        return f"Aggregate({self.how!r})"

    def build(self, given: Shape) -> Shape:
        """See `Block`.

        Raises:
            ModelError: Widths differ where they must agree; the message names the two.
        """
        some_width(given, self.label)
        if self.how == "concat":
            return Flat(given.width)
        if not isinstance(given, Branches):
            vectors = vectors_of(given, self.label)
            return vectors if self.how == "stack" else Flat(vectors.dim)
        if self.how == "stack":
            dims = {name: vectors_of_branch(one).dim for name, one in given.shapes.items()}
            self._check_alike(given, dims)
            return vectors_of(given, self.label)
        widths = {name: some_width(one, self.label) for name, one in given.shapes.items()}
        self._check_alike(given, widths)
        return Flat(next(iter(widths.values())))

    def forward(self, value: Value) -> Tensor:
        """The one value."""
        if self.how == "concat":
            return flat(value)
        if self.how == "stack":
            return stacked(value)
        if isinstance(value, dict):
            return _ELEMENTWISE[self.how]([flat(one) for one in value.values()])
        vectors = stacked(value)
        if self.how == "product":
            return _multiplied(vectors.unbind(1))
        return vectors.sum(1) if self.how == "sum" else vectors.mean(1)

    def _check_alike(self, given: Branches, widths: dict[str, int]) -> None:
        first, *others = widths
        for other in others:
            if widths[other] != widths[first]:
                one, two = (
                    f"{name!r} of {given.shapes[name].made_by} is {widths[name]} wide"
                    for name in (first, other)
                )
                raise ModelError(
                    f"{self.how!r} takes branches of one width: {one}, {two}",
                    hint="Bring them to one width, by an MLPBlock for example, or concat them.",
                )
