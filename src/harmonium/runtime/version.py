"""The version of this package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("harmonium")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0.0.0"
