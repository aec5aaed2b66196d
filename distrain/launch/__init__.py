"""Checks, starts, follows and finishes one job from this process; prints nothing."""
