"""How an edge's suite is served in each framework: one file for each."""
