"""The commands of ``permvi``, one module each; heavy libraries load when a command runs."""
