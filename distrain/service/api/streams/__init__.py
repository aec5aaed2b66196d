"""Streams of events and files, the service's metrics, and checks of its health."""
