"""Full shuffle: rows go to buckets by their places in the epoch's order, and then to batches."""
