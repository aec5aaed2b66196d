"""Measures a rank's time by phase, on the host and the device, and records why threads wait."""
