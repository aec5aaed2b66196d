"""The all-reduce of one vector of gradients, piece by piece, while backward makes the rest."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, distributed as dist, nn

LEAST_BYTES = 1 << 20
"""A message below it costs mostly its latency."""

_MOST_BUCKETS = 16


class GradientBuckets:
    """Adds up a vector of gradients over the ranks, bucket by bucket.

    A bucket is a run of whole parameters. Backward makes the last parameters' gradients first, so
    bucket 0 is the vector's end. Its all-reduce begins as soon as its gradients are there, and that
    of each further bucket after the one before: the order of the collective operations is the same
    on all ranks, whatever the order in which their gradients come. `start` begins the others, such
    as those of parameters that a batch did not use.

    A bucket's values follow from the parameters' sizes alone, and so do the bits of the sums, which
    all ranks share.

    Args:
        grads: `[size]`, the gradients.
        parameters: Whose gradients are views of it, in its order.
        starts: The first place of each of them.
        all_reduce: Begins to add a piece up over the ranks, in place.
    """

    def __init__(
        self,
        grads: Tensor,
        parameters: Sequence[nn.Parameter],
        starts: Sequence[int],
        all_reduce: Callable[[Tensor], dist.Work | None],
    ):
        self._all_reduce = all_reduce
        self._works: list[dist.Work] = []
        self._sizes: list[int] = []
        self._pieces: list[Tensor] = []
        self._armed = False
        self._missing: list[int] = []
        cuts = bucket_cuts([*starts, len(grads)], grads.element_size())
        for first, last in reversed(list(pairwise(cuts))):
            stop = starts[last] if last < len(starts) else len(grads)
            self._pieces.append(grads[starts[first] : stop])
            self._sizes.append(last - first)
            if len(cuts) > 2:  # one bucket is whole at the end of backward only
                for parameter in parameters[first:last]:
                    self._watch(parameter, len(self._pieces) - 1)

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def begun(self) -> int:
        """The buckets whose sums have begun since the last `finish`."""
        return len(self._works)

    def arm(self) -> None:
        """Let the coming backward pass, the step's last one, begin buckets."""
        self._missing = list(self._sizes)
        self._armed = True

    def start(self) -> None:
        self._armed = False
        while self.begun < len(self._pieces):
            self._begin_next()

    def finish(self) -> None:
        """Wait for the sums; on a GPU only its stream waits, not the host."""
        for work in self._works:
            work.wait()
        self._works = []

    def _watch(self, parameter: nn.Parameter, bucket: int) -> None:
        def has_come(_: Tensor) -> None:
            if self._armed:
                self._missing[bucket] -= 1
                while self.begun < len(self._pieces) and not self._missing[self.begun]:
                    self._begin_next()

        # torch has not annotated it.
        parameter.register_post_accumulate_grad_hook(has_come)  # type: ignore[no-untyped-call]

    def _begin_next(self) -> None:
        work = self._all_reduce(self._pieces[self.begun])
        assert work is not None
        self._works.append(work)


def bucket_cuts(bounds: Sequence[int], value_bytes: int) -> list[int]:
    """Return the first parameter of each bucket, then the number of parameters.

    Args:
        bounds: The first place of each parameter in the vector, and the vector's length.

    >>> bucket_cuts([0, 1_000_000, 1_000_016, 1_500_000], 4)
    [0, 2, 3]
    >>> bucket_cuts([0, 16, 32], 4)
    [0, 2]
    """
    least = max(LEAST_BYTES // value_bytes, bounds[-1] // _MOST_BUCKETS)
    count = len(bounds) - 1
    cuts, stop = [count], bounds[-1]
    for number in reversed(range(count)):  # as backward comes to them
        if stop - bounds[number] >= least and number > 0:
            cuts.append(number)
            stop = bounds[number]
    return [0, *reversed(cuts)]
