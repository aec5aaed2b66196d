"""Backward in two halves: what the embeddings wait for first, the dense parameters' share after it.

A layer's backward makes two products: the gradient of its input, which the layers before it wait
for, and that of its weight, which nobody waits for but the optimizer. With the first ones alone the
pass comes to the embeddings after about half of its work, so that their gradients can be on their
way to the other ranks while the rest is done. The operations are those of one pass, so their
results have the same bits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_Place = tuple[Node, int]
"""A node of the graph, and which of its inputs."""


class SplitBackward:
    """The backward pass of one loss to leaves, and after that to parameters.

    Making one looks at the graph; `to_leaves` and `to_parameters` then do one half each, in that
    order, each once.

    Args:
        loss: A scalar with a graph.
        leaves: Tensors that the graph ends at.
        parameters: The others that it ends at, or some of them; each `grad` is added to.

    >>> layer, leaf = nn.Linear(2, 1), torch.ones(3, 2, requires_grad=True)
    >>> backward = SplitBackward(layer(leaf).sum(), [leaf], layer.parameters())
    >>> backward.to_leaves(); leaf.grad is None, layer.weight.grad is None
    (False, True)
    >>> backward.to_parameters(); layer.weight.grad
    tensor([[3., 3.]])
    """

    def __init__(self, loss: Tensor, leaves: Sequence[Tensor], parameters: Iterable[nn.Parameter]):
        self._loss = loss
        self._leaves = list(leaves)
        self._parameters = list(parameters)
        self._given: dict[Node, tuple[Tensor, ...]] = {}
        graph = _Graph(loss, self._leaves)
        self.parts = graph.parts()
        """Whether the graph can be parted; else `to_leaves` does all, and the rest nothing."""
        self._sides = graph.sides if self.parts else {}
        self._waiting = graph.last_givers() if self.parts else {}

    def to_leaves(self) -> None:
        """Set the leaves' gradients."""
        if not self.parts:
            torch.autograd.backward(self._loss)
            return
        hooks = [node.register_prehook(self._taker(node)) for node in self._sides]
        torch.autograd.backward(self._loss, inputs=self._leaves, retain_graph=True)
        for hook in hooks:
            hook.remove()

    def to_parameters(self) -> None:
        """Add to the parameters' gradients, the last layers' first."""
        found: dict[_Place, Tensor] = {}
        open_nodes = set(self._given)
        while self._given:
            node = next(iter(self._given))
            found |= self._of_sides(node, self._given.pop(node))
            open_nodes.discard(node)
            ready = [p for p in found if not self._waiting[p] & open_nodes]
            self._accumulate({place: found.pop(place) for place in ready})

    def _taker(self, node: Node) -> Callable[[tuple[Tensor, ...]], None]:
        def take(grads: tuple[Tensor, ...]) -> None:
            self._given[node] = grads

        return take

    def _of_sides(self, node: Node, given: Sequence[Tensor]) -> dict[_Place, Tensor]:
        """What the node gives to its side inputs."""
        there = [(GradientEdge(node, i), grad) for i, grad in enumerate(given) if grad is not None]
        if not there:
            return {}
        outputs, grads = zip(*there, strict=True)
        places = self._sides[node]
        inputs = [GradientEdge(*place) for place in places]
        made = torch.autograd.grad(outputs, inputs, grads, retain_graph=True, allow_unused=True)
        return {p: grad for p, grad in zip(places, made, strict=True) if grad is not None}

    def _accumulate(self, grads: dict[_Place, Tensor]) -> None:
        if grads:
            torch.autograd.backward(
                [GradientEdge(*place) for place in grads],
                list(grads.values()),
                inputs=self._parameters,
                retain_graph=True,
            )


class _Graph:
    """The nodes between a loss and some leaves, and what hangs at them.

    Attributes:
        sides: Of each node on a way to a leaf, its inputs that are on none.
    """

    def __init__(self, loss: Tensor, leaves: Sequence[Tensor]):
        root = get_gradient_edge(loss).node
        ends = {get_gradient_edge(leaf).node for leaf in leaves}
        self._order = list(_post_order(root))  # inputs first
        self._on_way = set(ends)
        self.sides: dict[Node, list[_Place]] = {}
        for node in self._order:
            if any(below in self._on_way for below, _ in _inputs(node)):
                self._on_way.add(node)
        for node in self._on_way - ends:
            places = [place for place in _inputs(node) if place[0] not in self._on_way]
            if places:
                self.sides[node] = places

    def parts(self) -> bool:
        """Whether each side is one node's alone, and no side leads to another one.

        A parameter that two layers use as it is makes them one: neither could be asked alone. A
        loss that leads to no leaf has only sides.
        """
        if self._order[-1] not in self._on_way:
            return False
        heads = [place for places in self.sides.values() for place in places]
        nodes = {node for node, _ in heads}
        if len(nodes) < len(heads):
            return False
        return not any(nodes & (set(_post_order(node)) - {node}) for node in nodes)

    def last_givers(self) -> dict[_Place, set[Node]]:
        """For each side, the nodes whose sides meet with it: they are added up in one pass."""
        reached = {
            place: frozenset(_post_order(place[0]))
            for places in self.sides.values()
            for place in places
        }
        return {
            place: {
                node
                for node, places in self.sides.items()
                if any(below & reached[other] for other in places)
            }
            for place, below in reached.items()
        }


def _inputs(node: Node) -> list[_Place]:
    return [(below, number) for below, number in node.next_functions if below is not None]


def _post_order(root: Node) -> Iterator[Node]:
    """All nodes that a node leads to, each once and after its inputs, and then itself."""
    seen, stack = {root}, [(root, iter(_inputs(root)))]
    while stack:
        node, inputs = stack[-1]
        for below, _ in inputs:
            if below not in seen:
                seen.add(below)
                stack.append((below, iter(_inputs(below))))
                break
        else:
            stack.pop()
            yield node
