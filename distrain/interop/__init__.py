"""The loader inside other libraries' training loops: Keras, fastai, plain torch."""
