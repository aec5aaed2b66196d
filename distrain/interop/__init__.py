"""The loader inside other libraries' training loops; each module needs the library it is named for.

Nothing is imported here: `distrain.interop.keras` wants Keras 3 on torch, `distrain.interop.fastai`
wants fastai, `distrain.interop.torch` torch alone.
"""
