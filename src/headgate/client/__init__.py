"""The client side: callers of an API that limits them pace their requests, and listen to refusals."""

from headgate.client.full_jitter import backoff

__all__ = ["backoff"]
