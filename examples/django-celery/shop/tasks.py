"""Mails, at the pace of the provider."""

from celery import shared_task
from django.conf import settings
from django.core.mail import send_mail

from headgate import Limiter
from headgate.tasks.celery import throttled

provider = Limiter("2/second burst 1", store=f"{settings.REDIS}?deadline=1", namespace="mails")


@shared_task
@throttled(provider, key="provider", wait=2.0)
def invite(to):
    send_mail("Come and see", "There is a new shop.", "shop@example.com", [to])
