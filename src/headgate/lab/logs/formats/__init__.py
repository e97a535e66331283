"""The formats of logs, one reader each."""
