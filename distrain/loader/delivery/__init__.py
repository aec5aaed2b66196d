"""Delivers finished batches to the training loop: queues, streams, and copies to a device."""

from distrain.loader.delivery.channel import Channel, End, Failure, Ready
from distrain.loader.delivery.cuda_streams import (
    CudaStreams,
    Event,
    Streams,
    new_streams,
    resolve_device,
    thread_set_up,
)
from distrain.loader.delivery.epoch import Backend, EpochIterator, EpochWork
from distrain.loader.delivery.stats import LoaderStats, StatsRecorder, difference
from distrain.loader.delivery.transfer import Transform, map_tensors, new_delivery
from distrain.loader.own_threads import in_own_thread

__all__ = [
    "Backend",
    "Channel",
    "CudaStreams",
    "End",
    "EpochIterator",
    "EpochWork",
    "Event",
    "Failure",
    "LoaderStats",
    "Ready",
    "StatsRecorder",
    "Streams",
    "Transform",
    "difference",
    "in_own_thread",
    "map_tensors",
    "new_delivery",
    "new_streams",
    "resolve_device",
    "thread_set_up",
]
