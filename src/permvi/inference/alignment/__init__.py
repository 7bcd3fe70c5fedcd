"""Frames of reference, inferred together with the matching."""
