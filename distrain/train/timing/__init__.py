"""Where a rank's time goes: phases, the device's clock, and what it waits for."""

from distrain.train.timing.phases import (
    PEERS as PEERS,
    READER as READER,
    PhaseClock as PhaseClock,
    RankActivity as RankActivity,
    device_clock as device_clock,
    waiting as waiting,
)
