"""The app for `INSTALLED_APPS`, which registers the system checks."""

from django.apps import AppConfig
from django.core.checks import register

from headgate.web.django.checks import check_deployment, check_settings


class HeadgateConfig(AppConfig):
    """An app without models; with it, `manage.py check` checks `HEADGATE`."""

    name = "headgate.web.django"
    label = "headgate"
    verbose_name = "Headgate"

    def ready(self) -> None:
        """Register the checks."""
        register(check_settings)
        register(check_deployment, deploy=True)
