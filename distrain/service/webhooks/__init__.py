"""Delivers jobs' events to addresses that users name."""
