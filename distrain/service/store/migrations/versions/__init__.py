"""The migrations between revisions of the tables; a released migration never changes."""
