"""Text files in ranges that tasks read, and ranges in pieces of whole lines."""
