"""Programs for this repository, which are not shipped."""
