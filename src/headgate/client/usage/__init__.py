"""What a request costs: units reserved by its body, and settled by its answer. Bodies are only read, never changed."""

from headgate.client.usage.contract import Usage, UsageReader, UsageRequest
from headgate.client.usage.language_models import Chat, chat

__all__ = ["Chat", "Usage", "UsageReader", "UsageRequest", "chat"]
