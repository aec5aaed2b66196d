"""Commands that use saved models."""

from distrain.cli.saved.models import check_data as check_data, find_model as find_model
