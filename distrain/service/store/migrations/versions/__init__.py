"""The steps from one revision of the tables to the next; a released step never changes."""
