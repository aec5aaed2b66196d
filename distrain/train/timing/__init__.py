"""Where a rank's time goes: phases, the device's clock, and what it waits for."""

from distrain.train.timing.activity import (
    PEERS as PEERS,
    READER as READER,
    RankActivity as RankActivity,
    waiting as waiting,
)
from distrain.train.timing.phases import PhaseClock as PhaseClock, device_clock as device_clock
