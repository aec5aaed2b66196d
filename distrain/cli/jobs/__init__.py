"""Commands that submit jobs to a scheduler or a service, and show, follow and stop them."""
