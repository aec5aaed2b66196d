"""Delivers finished batches to the training loop: queues, streams, and copies to a device."""
