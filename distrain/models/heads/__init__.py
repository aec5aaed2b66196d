"""What a model is trained for: the last block of a network, its loss and its scores."""
