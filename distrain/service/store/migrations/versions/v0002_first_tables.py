"""The tables of version 0.2.0. Nothing to do: a new database gets the newest tables at once."""

revision = "0002"
down_revision = None
