"""A table in the host's memory whose recently used rows lie on the device.

Rows come to the device when a batch needs them. They go back, with their optimizer state, when
others need their place. A clock's hand decides which go: it sweeps over the places, passes by those
that were used since it last came, and takes the others ("second chance"). A step costs what its
batch touches here too, never the table or the cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.errors import SpecError

_SMALLEST_SWEEP = 4096


@dataclass
class CacheTraffic:
    """What a cache did since it was made.

    Of the rows that batches `asked` for, those `loaded` had to come from the host. Those
    `written_back` went there because others needed their place.
    """

    asked: int = 0
    loaded: int = 0
    written_back: int = 0


class RowCache:
    """The places on the device, and which row lies in each.

    There are `capacity` places, or `num_rows` if that is less.

    >>> table = torch.arange(6.0).view(6, 1)
    >>> cache = RowCache(num_rows=6, capacity=3)
    >>> cache.attach(table)
    0
    >>> places = cache.admit(torch.tensor([4, 1]))
    >>> cache.values(0)[places].flatten().tolist()
    [4.0, 1.0]
    """

    def __init__(self, num_rows: int, capacity: int):
        self.capacity = min(num_rows, capacity)
        self.traffic = CacheTraffic()
        self._num_rows = num_rows
        self._hosts: list[Tensor] = []
        self._values: list[Tensor] = []
        self._reset(torch.device("cpu"))

    def attach(self, host: Tensor) -> int:
        """Cache one more tensor `[num_rows, ...]` on the CPU; returns its number.

        Its rows that lie on the device are stale on the host until `settle`.
        """
        self.settle()
        self._hosts.append(host)
        return len(self._hosts) - 1

    def values(self, number: int) -> Tensor:
        """An attached tensor's rows on the device, `[capacity, ...]`, by place."""
        return self._values[number]

    def admit(self, rows: Tensor) -> Tensor:
        """Bring distinct rows `[v]`, int64, to the device; waits for a GPU.

        Returns their places, `[v]`, int64, which are good until the next call.

        Raises:
            SpecError: There are fewer places than rows.
        """
        if len(rows) > self.capacity:
            raise SpecError(
                "a batch needs more rows of a host-cached table than its cache has room for",
                where={"rows": len(rows), "places": self.capacity},
                hint="Raise embeddings.cache_gib, or lower train.global_batch_size.",
            )
        if rows.device != self._row_at.device or len(self._values) != len(self._hosts):
            self.settle()
            self._reset(rows.device)
        at = self._place_of[rows]
        missing, here = rows[at < 0], at[at >= 0].long()
        # Marked before others are looked for places for, so that these stay.
        self._used[here] = True
        self._pinned[here] = True
        if len(missing):
            places = self._free_places(len(missing))
            self._write_back(places)
            self._load(missing, places)
        found = self._place_of[rows].long()
        self._pinned[found] = False
        self._used[found] = True
        self.traffic.asked += len(rows)
        self.traffic.loaded += len(missing)
        return found

    def places(self, rows: Tensor) -> Tensor:
        """Where rows that were admitted lie, int64."""
        return self._place_of[rows].long()

    def rows_at(self, places: Tensor) -> Tensor:
        """Which rows lie at places, int64."""
        return self._row_at[places]

    def changed(self, places: Tensor) -> None:
        """Note that rows were changed at these places, so that they must go back some day."""
        self._dirty[places] = True

    def settle(self) -> None:
        """Bring every changed row back to the host, and forget all that lies on the device."""
        if self._values:
            self._write_back(torch.arange(self.capacity, device=self._row_at.device), count=False)
        self._reset(self._row_at.device, empty=True)

    def _reset(self, device: torch.device, *, empty: bool = False) -> None:
        self._values = [
            torch.empty((self.capacity, *host.shape[1:]), dtype=host.dtype, device=device)
            for host in ([] if empty else self._hosts)
        ]
        self._place_of = torch.full((self._num_rows,), -1, dtype=torch.int32, device=device)
        self._row_at = torch.full((self.capacity,), -1, dtype=torch.int64, device=device)
        self._used = torch.zeros(self.capacity, dtype=torch.bool, device=device)
        self._pinned = torch.zeros_like(self._used)
        self._dirty = torch.zeros_like(self._used)
        self._hand = 0

    def _free_places(self, count: int) -> Tensor:
        """`count` places without a row of this batch, in the order of the hand's sweep."""
        found: list[Tensor] = []
        while count > 0:
            width = min(self.capacity, max(_SMALLEST_SWEEP, 2 * count))
            window = torch.arange(self._hand, self._hand + width, device=self._row_at.device)
            window %= self.capacity
            free = window[~self._used[window] & ~self._pinned[window]][:count]
            if len(free) == count:
                # The hand stops behind the last place that it took.
                passed = (int(free[-1]) - self._hand) % self.capacity + 1
                window = window[:passed]
            self._used[window] = False
            self._hand = (self._hand + len(window)) % self.capacity
            self._pinned[free] = True
            found.append(free)
            count -= len(free)
        return torch.cat(found)

    def _write_back(self, places: Tensor, *, count: bool = True) -> None:
        rows = self._row_at[places]
        full = rows >= 0
        self._place_of[rows[full]] = -1
        places = places[full & self._dirty[places]]
        rows_on_host = self._row_at[places].cpu()
        for host, values in zip(self._hosts, self._values, strict=True):
            host[rows_on_host] = values[places].cpu()
        self._dirty[places] = False
        if count:
            self.traffic.written_back += len(places)

    def _load(self, rows: Tensor, places: Tensor) -> None:
        rows_on_host = rows.cpu()
        for host, values in zip(self._hosts, self._values, strict=True):
            values[places] = host[rows_on_host].to(values.device)
        self._row_at[places] = rows
        self._place_of[rows] = places.int()
        self._dirty[places] = False
