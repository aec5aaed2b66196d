"""Is this machine or cluster healthy, and how fast is it: `doctor` and `bench`."""
