"""Data of published studies: looked up in a local folder, in the user's cache, then online."""

from permvi.datasets.celegans import Connectome as Connectome
from permvi.datasets.celegans import celegans as celegans
from permvi.datasets.mnist import Digits as Digits
from permvi.datasets.mnist import mnist as mnist
from permvi.datasets.registry import DataFile as DataFile
from permvi.datasets.registry import find as find

__all__ = ["Connectome", "DataFile", "Digits", "celegans", "find", "mnist"]
