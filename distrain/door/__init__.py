"""The way to a scheduler's coordinator: orders, changes, documents and metrics over HTTP."""

from distrain.door.attach import (
    ensure_door as ensure_door,
    install as install,
    open_door as open_door,
)
