"""Commands that look at the jobs of a scheduler from outside, and stop them."""
