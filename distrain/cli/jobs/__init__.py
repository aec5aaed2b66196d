"""Commands that give jobs to a scheduler or a service, show them, follow them and stop them."""
