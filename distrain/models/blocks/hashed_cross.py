"""Crosses of categorical columns, hashed into bins."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from distrain.errors import ModelError
from distrain.models.blocks.functional import one_hot

# A Mersenne prime, and the largest number in int32.
PRIME = 2**31 - 1


@dataclass(frozen=True)
class HashedCross:
    """A column computed from several columns: the hash bin of their combined ids.

    With x_1 .. x_k a row's ids, the bin is

        ((a_0 + a_1 x_1 + ... + a_k x_k) mod (2^31 - 1)) mod num_bins

    with coefficients that follow from `seed`. It is a universal class of hash functions (Carter and
    Wegman, "Universal Classes of Hash Functions", JCSS 18, 1979, class H1, over vectors): over
    all seeds, two different rows of ids share a bin with probability at most 1/num_bins + 2^-31.
    64-bit integers cannot overflow here, so the bins are the same on every machine and device.

    It has no parameters. `Embeddings(crosses=[...])` makes the table over its bins.

    Args:
        columns: Names of two or more categorical columns. Their order matters: a cross of the same
            columns in another order has other bins.
        num_bins: Number of bins, fewer than 2^31 - 1.
        dim: The width of the bins' embeddings. `None`: `dim` of the `Embeddings` with this cross if
            that is a number, otherwise `infer_embedding_dim(num_bins)`.
        seed: Seed of the coefficients.

    Attributes:
        coefficients: a_0, a_1, .. a_k, each in 1 .. 2^31 - 2.

    Raises:
        ModelError: There are fewer than two columns, a column is repeated, or the number of bins is
            invalid.

    >>> import torch
    >>> cross = HashedCross(["cat_0", "cat_1"], num_bins=10)
    >>> cross.name
    'cat_0_X_cat_1'
    >>> cross.ids([torch.tensor([0, 1, 1]), torch.tensor([5, 5, 6])]).shape
    torch.Size([3])
    """

    columns: Sequence[str]
    num_bins: int
    dim: int | None = None
    seed: int = 0
    coefficients: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ModelError(
                f"HashedCross crosses two or more different columns, not {list(self.columns)}"
            )
        if not 1 <= self.num_bins < PRIME:
            raise ModelError(
                f"HashedCross {self.name} has {self.num_bins} bins",
                hint=f"Give it at least 1 and fewer than {PRIME}.",
            )

        # Computed here, since torch's compiler does not support a property that is cached at first
        # use.
        drawn = (_splitmix64(self.seed, number) for number in range(len(self.columns) + 1))
        object.__setattr__(self, "coefficients", tuple(1 + z % (PRIME - 1) for z in drawn))

    @property
    def name(self) -> str:
        return "_X_".join(self.columns)

    def ids(self, columns: Sequence[Tensor]) -> Tensor:
        """Return the rows' bins, `[rows]`, in 0 .. num_bins-1, in the first column's dtype.

        Each of `columns` is `[rows]`, int32 or int64, from 0 to below 2^31 - 1, in the order of
        `HashedCross.columns`.

        Raises:
            ModelError: There are more or fewer columns than in `HashedCross.columns`.
        """
        if len(columns) != len(self.columns):
            raise ModelError(
                f"HashedCross {self.name} crosses {len(self.columns)} columns, not {len(columns)}"
            )
        first, *factors = self.coefficients
        total: Tensor | int = first
        for factor, column in zip(factors, columns, strict=True):
            # Below 2^31 + 2^31 * 2^31, which int64 holds.
            total = (total + factor * column.long()) % PRIME
        assert isinstance(total, Tensor)
        return (total % self.num_bins).to(columns[0].dtype)

    def one_hot(self, columns: Sequence[Tensor]) -> Tensor:
        """Return the rows' bins as one-hot vectors, `[rows, num_bins]`; see `one_hot`."""
        return one_hot(self.ids(columns), self.num_bins)


def _splitmix64(seed: int, number: int) -> int:
    """Return an output of SplitMix64, 64 bits; `number` 0 is the first output.

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    mask = 2**64 - 1
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)
