"""The parts that networks are made of; each a `Block`."""
