"""Tells addresses that users name of their jobs' events."""

from distrain.service.webhooks.addresses import Place, place_of
from distrain.service.webhooks.delivering import Deliverer
from distrain.service.webhooks.posting import Posted, send
from distrain.service.webhooks.signing import signature, webhook_secret

__all__ = [
    "Deliverer",
    "Place",
    "Posted",
    "place_of",
    "send",
    "signature",
    "webhook_secret",
]
