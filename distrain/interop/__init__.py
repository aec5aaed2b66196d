"""Adapters of the loader for other libraries' training loops: Keras, fastai, plain torch."""
