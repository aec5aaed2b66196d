"""The sections `model`, a class for each kind, and `embeddings`."""
