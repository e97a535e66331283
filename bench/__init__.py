"""Headgate measured against an empty call, against itself and against pinned rivals: `python -m bench`."""
