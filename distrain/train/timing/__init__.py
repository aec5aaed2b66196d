"""A rank's time: phases, the device's clock, and the reasons of waits."""
