"""Full shuffle: writes rows to buckets by their places in the epoch's order, then to batches."""
