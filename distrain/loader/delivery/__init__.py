"""Delivers finished batches to the training loop: queues, streams, and copies to a device."""

from distrain.loader.delivery.channel import (
    Channel as Channel,
    End as End,
    Failure as Failure,
    Ready as Ready,
)
from distrain.loader.delivery.cuda_streams import (
    CudaStreams as CudaStreams,
    new_streams as new_streams,
    resolve_device as resolve_device,
    thread_set_up as thread_set_up,
)
from distrain.loader.delivery.epoch import (
    EpochIterator as EpochIterator,
    Production as Production,
)
from distrain.loader.delivery.stats import (
    LoaderStats as LoaderStats,
    StatsRecorder as StatsRecorder,
    difference as difference,
)
from distrain.loader.delivery.transfer import (
    Transform as Transform,
    map_tensors as map_tensors,
    new_delivery as new_delivery,
)
from distrain.loader.delivery.work import Backend as Backend, EpochWork as EpochWork
from distrain.loader.own_threads import in_own_thread as in_own_thread
