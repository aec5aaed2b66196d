"""Delivers jobs' events to addresses that users name."""

from distrain.service.webhooks.addresses import Place as Place, place_of as place_of
from distrain.service.webhooks.delivering import Deliverer as Deliverer
from distrain.service.webhooks.posting import (
    Posted as Posted,
    send as send,
    signature as signature,
    webhook_secret as webhook_secret,
)
