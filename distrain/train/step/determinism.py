"""torch's deterministic algorithms, for the part of a step whose kernels are torch's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Inside, torch takes deterministic algorithms on a GPU, and warns where it has none.

    The switch is the process's, also for autograd's threads, and is put back on the way out. It
    does not hold for tables, routes and metrics: these add up sorted segments or whole numbers,
    which is the same in any order of threads, and the switch would have torch sort every index that
    they write to, and write equal ones one after another.

    Attention is the one of plain products: the gradients of torch's fused ones differ from run to
    run unless the switch refuses, instead of warning of, what is not deterministic.
    """
    if device.type != "cuda":
        yield
        return
    filling = torch.utils.deterministic
    was_on = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = filling.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill every new tensor first; ours are written whole before they are read.
    filling.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
        filling.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
