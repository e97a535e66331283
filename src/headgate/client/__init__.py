"""The client side: callers of an API that limits them pace their requests, and listen to refusals."""

from headgate.client.budget import Budget
from headgate.client.deadlines import deadline
from headgate.client.full_jitter import backoff
from headgate.client.outgoing import Outgoing
from headgate.client.report import Event, Report
from headgate.client.retrying import Retries
from headgate.client.usage import Chat, Usage, chat

__all__ = ["Budget", "Chat", "Event", "Outgoing", "Report", "Retries", "Usage", "backoff", "chat", "deadline"]
