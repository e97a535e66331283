"""The pictures of the documentation, drawn from real decisions in virtual time: `python -m tools.pictures`."""
