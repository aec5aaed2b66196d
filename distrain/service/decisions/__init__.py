"""Decides the service's next steps for jobs and clusters, without calling anything itself.

The database and the scheduler are called through the protocol `World`.
"""
