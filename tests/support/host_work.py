"""What the host does for tensors of another device, of which "meta" is one without values."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from distrain.models.embeddings.kernels import cached_tensor


def tensors_of(some: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(some) if isinstance(leaf, torch.Tensor)]


class HostWork(TorchDispatchMode):
    """Counts operations, and notes the most values that one gave on the host.

    Attributes:
        copies: How many values each copy from the host to another device moved.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = self.operations = 0
        self.copies: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        gave = tensors_of(out)
        self.most = max([self.most, *(leaf.numel() for leaf in gave if leaf.is_cpu)])
        if any(not leaf.is_cpu for leaf in gave):
            self.copies += [leaf.numel() for leaf in tensors_of((args, kwargs)) if leaf.is_cpu]
        return out


class Far(torch.Tensor):
    """A tensor that says it lies on "meta", and has values."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> "Far":
        made: Far = torch.Tensor._make_wrapper_subclass(
            cls, near.shape, near.stride(), dtype=near.dtype, device=torch.device("meta")
        )
        made.near = near
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of a PlayedDevice")


class PlayedDevice(TorchDispatchMode):
    """Inside, "meta" is a device with values: what is made there, or of what is there, is `Far`.

    Attributes:
        waits: Operations for which the host would wait: values read, shapes asked for, copies to
            the host, and those from it that are not told to be non-blocking.
        copies: Of all from the host, how many values each moved.
        launches: Operations on what is there, other than views.
    """

    ASKS = ("aten.nonzero", "aten._local_scalar_dense", "aten._unique2", "aten.masked_select")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.copies: list[int] = []
        self.launches = 0

    def forget(self) -> None:
        """Set the counts to zero."""
        self.waits, self.copies, self.launches = [], [], 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name, wanted = str(func), kwargs.get("device")
        there = torch.device(wanted).type == "meta" if wanted is not None else None
        if there:
            kwargs["device"] = "cpu"
        given = tensors_of((args, kwargs))
        any_far = any(isinstance(tensor, Far) for tensor in given)
        if any(tensor.is_meta and not isinstance(tensor, Far) for tensor in given):
            raise AssertionError(f"{name} is given a list, which torch copies to the device itself")
        stays = any_far if there is None else there
        self.launches += bool(stays and not func.is_view)
        if name.startswith("aten.copy_"):
            stays = isinstance(args[0], Far)
            self._note(name, args[1], stays, bool(kwargs.get("non_blocking") or args[2:]))
        elif name.startswith("aten._to_copy"):
            self._note(name, args[0], stays, bool(kwargs.get("non_blocking")))
        elif any_far and (name.startswith(self.ASKS) or _asks_for_places(name, args)):
            self.waits.append(name)
        out = func(*tree_map(_near, args), **tree_map(_near, kwargs))
        if args and out is _near(args[0]):
            return args[0]
        return tree_map(_far, out) if stays else out

    def _note(self, name: str, source: torch.Tensor, to_far: bool, non_blocking: bool) -> None:
        if isinstance(source, Far) != to_far and source.dim():
            self.copies += [source.numel()] if to_far else []
            self.waits += [] if non_blocking else [name]


def _asks_for_places(name: str, args: Any) -> bool:
    masks = args[1] if name.startswith("aten.index.") else ()
    return any(mask is not None and mask.dtype == torch.bool for mask in masks)


def _near(leaf: Any) -> Any:
    return leaf.near if isinstance(leaf, Far) else leaf


def _far(leaf: Any) -> Any:
    return Far(leaf) if isinstance(leaf, torch.Tensor) else leaf


@contextmanager
def played_torch() -> Iterator[PlayedDevice]:
    """A played device on which whole models train: what torch does for real devices alone is left.

    `torch.tensor` copies what it makes, and autocast, which no test here needs, does nothing.
    Constants that the process keeps for "meta" are made again, before and after.
    """
    new = torch.tensor

    def tensor(*given: Any, device: Any = None, **options: Any) -> torch.Tensor:
        made = new(*given, **options)
        return made if device is None else made.to(device)

    no_autocast = patch.object(torch, "autocast", lambda *_, **__: nullcontext())
    cached_tensor.cache_clear()
    with patch.object(torch, "tensor", tensor), no_autocast, PlayedDevice() as device:
        try:
            yield device
        finally:
            cached_tensor.cache_clear()
