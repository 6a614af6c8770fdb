"""The version of the library, which certificates quote."""

__all__ = ["__version__"]

__version__ = "0.1.0"
