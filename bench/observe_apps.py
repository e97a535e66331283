"""Apps whose counts are exported, as the documentation shows it."""

from __future__ import annotations

import os
from typing import Any

from bench.web_apps import DIRECTORY, App, ours_asgi, plain_asgi

PROMETHEUS = "ASGI, headgate, exported to Prometheus"
TELEMETRY = "ASGI, headgate, exported to OpenTelemetry"


def observed_apps() -> list[App]:
    return [
        App(PROMETHEUS, "asgi", to_prometheus, "ASGI"),
        App(TELEMETRY, "asgi", to_telemetry, "ASGI"),
    ]


def to_prometheus() -> Any:
    from prometheus_client import CollectorRegistry

    from headgate.observe.prometheus import export

    app = ours_asgi(plain_asgi())
    export(app, publish=f"{os.environ[DIRECTORY]}/watch", registry=CollectorRegistry())
    return app


def to_telemetry() -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from headgate.observe.otel import export

    app = ours_asgi(plain_asgi())
    meter = MeterProvider([InMemoryMetricReader()]).get_meter("bench")
    export(app, publish=f"{os.environ[DIRECTORY]}/watch", meter=meter)
    return app
