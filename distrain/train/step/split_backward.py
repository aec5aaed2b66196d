"""Backward in two halves: first the embeddings' gradients, then those of the dense parameters.

A layer's backward pass has two products: the gradient of its input, which earlier layers need, and
that of its weight, which only the optimizer needs. With the first products alone, the pass reaches
the embeddings after about half of its work. So their gradients can be sent to other ranks during
the other half. The operations are those of a single pass, so the results have the same bits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, _engine_run_backward, get_gradient_edge

_Place = tuple[Node, int]
"""A node of the graph, and the index of one of its inputs."""


def can_part(module: nn.Module) -> bool:
    """Return True if a module is made of torch's and distrain's layers alone, without hooks.

    Both halves pass through the same nodes. A hook, a checkpoint or an autograd function of another
    library's layer would run in both: it might count twice, change a gradient twice, or repeat a
    forward pass for each layer.

    >>> can_part(nn.Linear(2, 1))
    True
    """
    return not any(
        not type(layer).__module__.startswith(("torch.nn.", "distrain."))
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        for layer in module.modules()
    )


class SplitBackward:
    """The backward pass of one loss: first to leaves, then to parameters.

    Creating an instance analyses the graph. `to_leaves` and `to_parameters` then run one half each,
    in that order, once.

    Args:
        loss: A scalar with a graph.
        leaves: Leaf tensors of the graph, to which the first half leads.
        parameters: Other leaves of the graph; their gradients are added to `grad`.

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
        self._found: dict[_Place, Tensor] = {}
        self._graph = _Graph(loss, self._leaves)
        self.parts = self._graph.reaches
        """Whether the graph leads to a leaf; otherwise `to_leaves` does everything."""

    def to_leaves(self) -> None:
        if not self.parts:
            torch.autograd.backward(self._loss)
            return
        shared = self._graph.shared
        hooks = [node.register_prehook(self._taker(node)) for node in self._graph.own]
        ends: list[Any] = [*self._leaves, *(GradientEdge(*place) for place in shared)]
        made = torch.autograd.grad(
            self._loss,
            ends,
            retain_graph=True,
            allow_unused=True,
        )
        for hook in hooks:
            hook.remove()
        for leaf, grad in zip(self._leaves, made, strict=False):
            leaf.grad = grad if leaf.grad is None or grad is None else leaf.grad + grad
        self._take(shared, made[len(self._leaves) :])

    def to_parameters(self) -> None:
        if not self.parts:
            return
        together = self._graph.together()
        self._accumulate(together)
        while self._given:
            node = next(iter(self._given))
            self._take(*self._of_sides(node, self._given.pop(node)))
            self._accumulate(together)

    def _taker(self, node: Node) -> Callable[[tuple[Tensor, ...]], None]:
        def take(grads: tuple[Tensor, ...]) -> None:
            self._given[node] = grads

        return take

    def _take(self, places: Sequence[_Place], grads: Sequence[Tensor | None]) -> None:
        self._found |= {p: g for p, g in zip(places, grads, strict=True) if g is not None}

    def _of_sides(
        self, node: Node, given: Sequence[Tensor | None]
    ) -> tuple[Sequence[_Place], Sequence[Tensor | None]]:
        """Return the side inputs (see `_Graph`) that only this node has, and their gradients.

        `given` are the gradients of the node's outputs.
        """
        places = self._graph.own[node]
        there = [(GradientEdge(node, i), grad) for i, grad in enumerate(given) if grad is not None]
        if not there:
            return places, [None] * len(places)
        outputs, grads = zip(*there, strict=True)
        inputs = [GradientEdge(*place) for place in places]
        return places, _backward(outputs, grads, inputs, accumulate=False)

    def _accumulate(self, together: Sequence[tuple[set[_Place], set[Node]]]) -> None:
        """Run the backward pass from side inputs to the parameters, where possible.

        `together` is the result of `_Graph.together`. A group's pass runs once all its nodes have
        run.
        """
        for places, givers in together:
            ready = [place for place in self._found if place in places]
            if ready and not givers & self._given.keys():
                edges = [GradientEdge(*place) for place in ready]
                grads = [self._found.pop(place) for place in ready]
                _backward(edges, grads, self._parameters, accumulate=True)


class _Graph:
    """The nodes between a loss and some leaves, and their side inputs.

    A side input is an input of a node on a path to a leaf that is not itself on such a path. If
    several nodes have the same side input, or a path from another side input leads to it, its
    gradient does not come from a single node. An example is a tower's output that is multiplied
    with each embedding. Such a side input is treated as another leaf, whose gradient is complete
    once all nodes have run.

    Attributes:
        own: For each node its side inputs that no other node has.
        shared: The side inputs that are treated as leaves.
        reaches: Whether the loss leads to a leaf.
    """

    def __init__(self, loss: Tensor, leaves: Sequence[Tensor]):
        root = get_gradient_edge(loss).node
        self._order = list(_post_order(root))  # inputs before the nodes that use them
        leaf_nodes = {get_gradient_edge(leaf).node for leaf in leaves} & set(self._order)
        self.reaches = bool(leaf_nodes)
        ends: set[Node] = set()
        while True:
            ends, on_way = self._leading_to(leaf_nodes | ends)
            sides = self._sides(ends, on_way)
            found = {place: _below(place[0]) for places in sides.values() for place in places}
            givers = Counter(place[0] for places in sides.values() for place in set(places))
            covered = [_below(end) - {end} for end in ends - leaf_nodes]
            covered += [below - {place[0]} for place, below in found.items()]
            bad = {n for n, count in givers.items() if count > 1 or any(n in c for c in covered)}
            if not bad:
                break
            ends |= bad
        taken = ends - leaf_nodes
        places = (place for node in self._order if node in on_way for place in _inputs(node))
        self.shared = list(dict.fromkeys(place for place in places if place[0] in taken))
        self.own = {node: list(dict.fromkeys(places)) for node, places in sides.items() if places}
        self._reach = found | {place: _below(place[0]) for place in self.shared}

    def _leading_to(self, ends: set[Node]) -> tuple[set[Node], set[Node]]:
        """Return the ends that lead to no other end, and all nodes on a path to any end."""
        on_way, last = set(ends), set()
        for node in self._order:
            if any(below in on_way for below, _ in _inputs(node)):
                on_way.add(node)
            elif node in ends:
                last.add(node)
        return last, on_way

    def _sides(self, ends: set[Node], on_way: set[Node]) -> dict[Node, list[_Place]]:
        return {
            node: [place for place in _inputs(node) if place[0] not in on_way]
            for node in self._order
            if node in on_way and node not in ends
        }

    def together(self) -> list[tuple[set[_Place], set[Node]]]:
        """Return groups of side inputs, and for each group the nodes whose inputs they are.

        Side inputs that reach a common node are in one group. One backward pass continues from each
        group, so each parameter gets its gradient at once.
        """
        made: list[tuple[set[_Place], set[Node]]] = []
        giver = {place: node for node, places in self.own.items() for place in places}
        for place, below in self._reach.items():
            places, reached = {place}, set(below)
            apart = []
            for others, others_reach in made:
                if others_reach & reached:
                    places |= others
                    reached |= others_reach
                else:
                    apart.append((others, others_reach))
            made = [*apart, (places, reached)]
        return [(places, {giver[p] for p in places if p in giver}) for places, _ in made]


def _backward(
    outputs: Sequence[GradientEdge],
    grads: Sequence[Tensor],
    inputs: Sequence[GradientEdge | Tensor],
    *,
    accumulate: bool,
) -> tuple[Tensor | None, ...]:
    """Call `torch.autograd.backward` for inputs if it accumulates, else `torch.autograd.grad`.

    The shape checks of both are omitted, because they would load a part of torch's compiler.
    """
    return _engine_run_backward(
        tuple(outputs), tuple(grads), True, False, tuple(inputs), True, accumulate_grad=accumulate
    )


def _below(node: Node) -> frozenset[Node]:
    return frozenset(_post_order(node))


def _inputs(node: Node) -> list[_Place]:
    return [(below, number) for below, number in node.next_functions if below is not None]


def _post_order(root: Node) -> Iterator[Node]:
    """Yield all nodes below a node, each once and after its inputs, and finally the node."""
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
