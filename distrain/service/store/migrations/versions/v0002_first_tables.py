"""The tables of version 0.2.0: a database without any gets those of the newest revision at once."""

revision = "0002"
down_revision = None
