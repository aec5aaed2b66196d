"""Full shuffles: rows go to buckets by their places on the line, and from there to batches."""
