"""The version of this package, by itself, so that rooms can write it down."""

__version__ = "0.1.0"
