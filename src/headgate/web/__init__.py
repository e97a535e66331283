"""The edges: what an answer looks like in HTTP, and one file for each framework."""
