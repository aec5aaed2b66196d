"""Where a rank's time goes: phases, the device's clock, and what it waits for."""

from distrain.train.timing.activity import PEERS, READER, RankActivity, waiting
from distrain.train.timing.device_clock import device_clock
from distrain.train.timing.phases import PhaseClock

__all__ = ["PEERS", "READER", "PhaseClock", "RankActivity", "device_clock", "waiting"]
