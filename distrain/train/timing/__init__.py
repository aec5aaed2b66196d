"""Where a rank's time goes: phases, the device's clock, and what it waits for."""
