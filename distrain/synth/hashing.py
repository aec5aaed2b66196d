"""Hashes in place of tables: category texts and planted effects for any number of ids."""

import numpy as np
import numpy.typing as npt

from distrain.synth.draw import Floats, Ints

Words32 = npt.NDArray[np.uint32]
Words64 = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15


def raw_category(column: int, ids: Ints) -> Words32:
    """The 32-bit raw value of each id of the `column`-th category, uint32 `[rows]`.

    Different for different ids of a column: an exclusive or with the column's key, then the
    finaliser of MurmurHash3, which is a permutation of 32-bit words.

    >>> ["%08x" % word for word in raw_category(0, np.arange(3, dtype=np.int32))]
    ['92ca2f0e', '36deb503', 'b4421bbb']
    """
    key = np.uint32(((column + 1) * _GOLDEN >> 32) & 0xFFFFFFFF)
    word = ids.astype(np.uint32) ^ key
    word ^= word >> np.uint32(16)
    word *= np.uint32(0x85EBCA6B)
    word ^= word >> np.uint32(13)
    word *= np.uint32(0xC2B2AE35)
    word ^= word >> np.uint32(16)
    return word


def pseudo_normal(seed: int, name: str, ids: npt.NDArray[np.int64]) -> Floats:
    """A number per (seed, name, id) that looks standard normal, float64 `[rows]`.

    The standardised sum of the four 16-bit parts of a SplitMix64 hash: whole numbers up to the
    last division, so the same on every machine. Its range is about +-3.5.
    """
    word = ids.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(_key(seed, name))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    low = np.uint64(0xFFFF)
    total = (word & low) + (word >> np.uint64(16) & low)
    total += (word >> np.uint64(32) & low) + (word >> np.uint64(48))
    effects: Floats = (total.astype(np.float64) - 2 * 0xFFFF) / (0x10000 * (4 / 12) ** 0.5)
    return effects


def _key(seed: int, name: str) -> int:
    # Python's hash() of a text differs from process to process; this does not.
    parts = np.random.SeedSequence((seed, *name.encode())).generate_state(1, np.uint64)
    return int(parts[0])
