"""Takes jobs over a scheduler's HTTP: put, cancel, changes since a revision."""

from distrain.gateway.attach import install as install, open_gateway as open_gateway
