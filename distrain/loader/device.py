"""From the host to a device, beside the consumer's work."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from distrain.loader.delivery import Delivery, HostDelivery, Transform


def new_delivery(device: torch.device | None, transforms: Sequence[Transform]) -> Delivery:
    """How batches get to the consumer."""
    return HostDelivery(transforms)
