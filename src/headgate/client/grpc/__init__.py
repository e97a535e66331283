"""`interceptors` and `aio_interceptors`: a budget for the calls of a gRPC channel.

channel = grpc.intercept_channel(channel, *interceptors(github))
channel = grpc.aio.insecure_channel(target, interceptors=aio_interceptors(github))

An interceptor does not see the target of its channel: the host of a request, and so its default key, is the name of the
service, as in `google.pubsub.v1.Publisher`. A response cannot be made up: a refusal raises `BudgetExhausted`.

| call           | waits for                                | sent again              |
|----------------|------------------------------------------|-------------------------|
| unary          | the answer; in threads `.future()` too   | yes                     |
| server streams | the first message                        | until the first message |
| client streams | its turn                                 | never                   |

RESOURCE_EXHAUSTED is a 429: any call is sent again. UNAVAILABLE is a 503: a call was not processed if the server tells
a time, or if no connection was made; else only a call with the metadata `idempotency-key` is sent again. The timeout of
a call is for all its attempts, and for its waits.
"""

from headgate.wording import requiring

with requiring("headgate.client.grpc", "grpcio", "grpc", extra="grpc"):
    from headgate.client.grpc.aio import aio_interceptors
    from headgate.client.grpc.threads import interceptors

__all__ = ["aio_interceptors", "interceptors"]
