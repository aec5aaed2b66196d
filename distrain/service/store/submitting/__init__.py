"""New jobs: each with its spec, tags, key and event at once, within the quota."""
