"""What the host does for tensors of another device, of which "meta" is one without values."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HostWork(TorchDispatchMode):
    """Counts operations, and notes the most values that one gave on the host.

    Attributes:
        copies: How many values each copy from the host to another device moved.
    """

    def __init__(self):
        super().__init__()
        self.most = self.operations = 0
        self.copies = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        given, gave = (
            [leaf for leaf in tree_leaves(some) if isinstance(leaf, torch.Tensor)]
            for some in ((args, kwargs), out)
        )
        self.most = max([self.most, *(leaf.numel() for leaf in gave if leaf.is_cpu)])
        if any(not leaf.is_cpu for leaf in gave):
            self.copies += [leaf.numel() for leaf in given if leaf.is_cpu]
        return out
