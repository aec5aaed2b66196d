"""A table in the host's memory whose recently used rows are on the device.

Rows are copied to the device when a batch needs them. They are copied back, with their optimizer
state, when other rows need their place. The clock algorithm ("second chance") selects the rows to
replace: its hand sweeps over the places, skips the places used since its last pass, and frees the
others. The cost of a step depends on its batch, not on the size of the table or the cache.

The algorithm runs on the host, which waits for a GPU once a batch: for the numbers of the batch's
rows and their places. Values are copied through page-locked memory while the host continues. Rows
that are copied back arrive while the batch trains, and are put into the table before the next batch
loads any.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.loader.host_memory import Slab, event_after, to_device

_SMALLEST_SWEEP = 4096
_FLUSHED_AT_ONCE = 1 << 16  # cache slots copied at once by `flush`; limits page-locked memory


class _Returning(NamedTuple):
    """Changed rows that are being copied from the device to the host, complete after `event`."""

    rows: Tensor
    values: list[Tensor]
    event: torch.cuda.Event | None


class DeviceRowCache:
    """Caches rows of a table of `num_rows` rows in `capacity` places (cache entries) on the device.

    >>> table = torch.arange(6.0).view(6, 1)
    >>> cache = DeviceRowCache(num_rows=6, capacity=3)
    >>> cache.attach(table)
    0
    >>> places = cache.admit(torch.tensor([4, 1]))
    >>> cache.values(0)[places].flatten().tolist()
    [4.0, 1.0]
    """

    def __init__(self, num_rows: int, capacity: int):
        self.capacity = min(num_rows, capacity)
        self._num_rows = num_rows
        self._hosts: list[Tensor] = []
        self._values: list[Tensor] = []
        self._asked, self._loads, self._backs = Slab(), list[Slab](), list[Slab]()
        self._returning: _Returning | None = None
        self._reset(torch.device("cpu"))

    def attach(self, host: Tensor) -> int:
        """Add a tensor to cache, such as the weight or optimizer state; return its index.

        `host` is `[num_rows, ...]`. Rows that are changed on the device are stale in `host` until
        `flush`.
        """
        self.flush()
        self._hosts.append(host)
        self._loads.append(Slab())
        self._backs.append(Slab())
        return len(self._hosts) - 1

    def values(self, number: int) -> Tensor:
        return self._values[number]

    def admit(self, rows: Tensor) -> Tensor:
        """Copy rows to the device, except those that are there already.

        `rows`, `[v]`, int64, are distinct. The host waits for a GPU once.

        Returns:
            The rows' places on the device, `[v]`, int64, valid until the next call.

        Raises:
            SpecError: There are more rows than `capacity`.
        """
        if len(rows) > self.capacity:
            raise SpecError(
                "a batch needs more rows of a host-cached table than its cache can hold",
                where={"rows": len(rows), "places": self.capacity},
                hint="Raise embeddings.cache_gib, or lower train.global_batch_size.",
            )
        if rows.device != self._place_of.device or len(self._values) != len(self._hosts):
            self.flush()
            self._reset(rows.device)
        asked = self._asked.on_host(torch.stack([rows, self._place_of[rows].long()]))
        numbers, found = asked.clone()
        is_missing = found < 0
        missing, here = numbers[is_missing], found[~is_missing]
        # Mark these rows before the search for free places, so that they stay.
        self._used[here] = True
        self._pinned[here] = True
        if len(missing):
            places = self._free_places(len(missing))
            self._write_back(places)
            self._load(missing, places)
            found[is_missing] = places
        self._pinned[found] = False
        self._used[found] = True
        self._admitted = found
        return self.places(rows)

    def places(self, rows: Tensor) -> Tensor:
        return self._place_of[rows].long()

    def rows_at(self, places: Tensor) -> Tensor:
        return self._row_there[places]

    def changed(self) -> None:
        """Mark the rows of the last `admit` as changed, so that they are copied back later."""
        self._dirty[self._admitted] = True

    def flush(self) -> None:
        """Copy every changed row back to the host, and empty the cache."""
        if self._values:
            for start in range(0, self.capacity, _FLUSHED_AT_ONCE):
                stop = min(start + _FLUSHED_AT_ONCE, self.capacity)
                self._write_back(torch.arange(start, stop))
            self._finish_return()
        self._reset(self._place_of.device, empty=True)

    def _reset(self, device: torch.device, *, empty: bool = False) -> None:
        self._values = [
            torch.empty((self.capacity, *host.shape[1:]), dtype=host.dtype, device=device)
            for host in ([] if empty else self._hosts)
        ]
        self._place_of = torch.full((self._num_rows,), -1, dtype=torch.int32, device=device)
        self._row_there = torch.full((self.capacity,), -1, dtype=torch.int64, device=device)
        self._row_at = torch.full((self.capacity,), -1, dtype=torch.int64)
        self._used = torch.zeros(self.capacity, dtype=torch.bool)
        self._pinned = torch.zeros_like(self._used)
        self._dirty = torch.zeros_like(self._used)
        self._admitted = torch.empty(0, dtype=torch.int64)
        self._hand = 0

    def _free_places(self, count: int) -> Tensor:
        """Reserve `count` places that have no row of this batch, in the order of the clock hand.

        Returns the places, `[count]`, int64, on the CPU. There must be at least `count` such
        places.
        """
        found: list[Tensor] = []
        while count > 0:
            width = min(self.capacity, max(_SMALLEST_SWEEP, 2 * count))
            window = torch.arange(self._hand, self._hand + width)
            window %= self.capacity
            free = window[~self._used[window] & ~self._pinned[window]][:count]
            if len(free) == count:
                # The hand stops behind the last place taken.
                passed = (int(free[-1]) - self._hand) % self.capacity + 1
                window = window[:passed]
            self._used[window] = False
            self._hand = (self._hand + len(window)) % self.capacity
            self._pinned[free] = True
            found.append(free)
            count -= len(free)
        return torch.cat(found)

    def _write_back(self, places: Tensor) -> None:
        """Empty some places, and begin to copy their changed rows to the host's tensors.

        Waits for the end of the previous such copy.
        """
        rows = self._row_at[places]
        full = rows >= 0
        self._place_of[self._there(rows[full])] = -1
        places = places[full & self._dirty[places]]
        self._finish_return()  # the copies below reuse the previous copy's page-locked memory
        if len(places):
            taken = self._there(places)
            values = [
                slab.on_host(values.index_select(0, taken), non_blocking=True)
                for slab, values in zip(self._backs, self._values, strict=True)
            ]
            self._returning = _Returning(self._row_at[places], values, event_after(taken.device))
        self._dirty[places] = False

    def _finish_return(self) -> None:
        if self._returning is not None:
            rows, arrived, event = self._returning
            if event is not None:
                event.synchronize()
            for host, values in zip(self._hosts, arrived, strict=True):
                host.index_copy_(0, rows, values)
            self._returning = None

    def _load(self, rows: Tensor, places: Tensor) -> None:
        rows_there, places_there = self._there(rows), self._there(places)
        for host, values, slab in zip(self._hosts, self._values, self._loads, strict=True):
            # The device has read the memory lent earlier: the host has waited for it since.
            lent = slab.allocate_like(host, len(rows), values.device)
            torch.index_select(host, 0, rows, out=lent)
            values.index_copy_(0, places_there, lent.to(values.device, non_blocking=True))
        self._row_at[places] = rows
        self._row_there[places_there] = rows_there
        self._place_of[rows_there] = places_there.int()
        self._dirty[places] = False

    def _there(self, numbers: Tensor) -> Tensor:
        return to_device(numbers, self._place_of.device)
