"""Delivers jobs' events to addresses that users name."""

from distrain.service.webhooks.addresses import place_of as place_of
from distrain.service.webhooks.delivering import Deliverer as Deliverer
from distrain.service.webhooks.posting import send as send, webhook_secret as webhook_secret
