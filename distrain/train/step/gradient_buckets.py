"""The all-reduce of one vector of gradients, piece by piece, during the backward pass."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, distributed as dist, nn

LEAST_BYTES = 1 << 20
"""The minimum size of a bucket, except of the one with the first parameters: because of their
latency, smaller messages take about as long."""

_MOST_BUCKETS = 16


class GradientBuckets:
    """Adds up a vector of gradients over the ranks, bucket by bucket.

    A bucket consists of consecutive parameters. The backward pass computes the last parameters'
    gradients first, so bucket 0 is the vector's end. Its all-reduce begins as soon as its gradients
    are complete; that of each further bucket begins after the previous one. So the order of the
    collective operations is the same on all ranks, for any order of the gradients. `start` begins
    the remaining ones, such as those of parameters that a batch did not use.

    The cuts depend on the parameters' sizes alone, so all ranks get sums with the same bits.

    Args:
        grads: `[size]`, the gradients.
        parameters: The parameters whose gradients are views of `grads`, in its order.
        starts: The index in `grads` at which each parameter begins.
        all_reduce: Begins to add up a piece over the ranks, in place.
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
            if len(cuts) > 2:  # a single bucket is only complete at the end of the backward pass
                for parameter in parameters[first:last]:
                    self._watch(parameter, len(self._pieces) - 1)

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def begun(self) -> int:
        """The number of buckets whose all-reduce has begun since the last `finish`."""
        return len(self._works)

    def arm(self) -> None:
        """Let the next backward pass begin the all-reduces; call it before a step's last one."""
        self._missing = list(self._sizes)
        self._armed = True

    def start(self) -> None:
        self._armed = False
        while self.begun < len(self._pieces):
            self._begin_next()

    def finish(self) -> None:
        """Wait for the sums; on a GPU the stream waits, not the host."""
        for work in self._works:
            work.wait()
        self._works = []

    def _watch(self, parameter: nn.Parameter, bucket: int) -> None:
        def has_come(_: Tensor) -> None:
            if self._armed:
                self._missing[bucket] -= 1
                while self.begun < len(self._pieces) and not self._missing[self.begun]:
                    self._begin_next()

        # torch has no type annotation for this method.
        parameter.register_post_accumulate_grad_hook(has_come)  # type: ignore[no-untyped-call]

    def _begin_next(self) -> None:
        work = self._all_reduce(self._pieces[self.begun])
        assert work is not None
        self._works.append(work)


def bucket_cuts(bounds: Sequence[int], value_bytes: int) -> list[int]:
    """Return the index of the first parameter of each bucket, then the number of parameters.

    Args:
        bounds: The index at which each parameter begins in the vector, and the vector's length.

    >>> bucket_cuts([0, 1_000_000, 1_000_016, 1_500_000], 4)
    [0, 2, 3]
    >>> bucket_cuts([0, 16, 32], 4)
    [0, 2]
    """
    least = max(LEAST_BYTES // value_bytes, bounds[-1] // _MOST_BUCKETS)
    count = len(bounds) - 1
    cuts, stop = [count], bounds[-1]
    for number in reversed(range(count)):  # in the order of the backward pass
        if stop - bounds[number] >= least and number > 0:
            cuts.append(number)
            stop = bounds[number]
    return [0, *reversed(cuts)]
