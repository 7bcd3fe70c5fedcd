"""The cells of CSV files, under the name that the readers of the commands import."""

from permvi._csv import is_number as is_number
