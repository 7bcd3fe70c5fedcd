"""The commands of ``permvi``. Heavy libraries are imported when a command runs."""
