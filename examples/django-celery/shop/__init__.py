"""A site that sends invitations."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
