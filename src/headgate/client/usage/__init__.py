"""The cost of a request: its body reserves units, and its answer settles them. Bodies are read, never changed."""

from headgate.client.usage.contract import Usage, UsageReader, UsageRequest
from headgate.client.usage.language_models import Chat, chat

__all__ = ["Chat", "Usage", "UsageReader", "UsageRequest", "chat"]
