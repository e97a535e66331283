"""The transports of budgets: a service that answers as it is told, and an adapter for each library that asks it."""
