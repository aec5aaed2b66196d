"""Ranks meet, choose devices, and agree on the step at which they save or stop."""
