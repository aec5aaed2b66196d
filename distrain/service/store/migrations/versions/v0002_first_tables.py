"""The tables of version 0.2.0. This migration does nothing: a new database gets all tables."""

revision = "0002"
down_revision = None
