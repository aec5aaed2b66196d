"""Delivers jobs' events to addresses that users name."""

from distrain.service.webhooks.delivering import Deliverer as Deliverer
from distrain.service.webhooks.posting import (
    place_of as place_of,
    send as send,
    webhook_secret as webhook_secret,
)
