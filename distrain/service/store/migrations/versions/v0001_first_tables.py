"""The first tables: a database without any gets those of the newest revision at once."""

revision = "0001"
down_revision = None
