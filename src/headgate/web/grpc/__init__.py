"""gRPC: a policy in front of a server's methods, and limits at single ones; for threads and for event loops.

server = grpc.server(pool, interceptors=[RateLimitInterceptor("policy.yaml", store="redis://cache")])
server = grpc.aio.server(interceptors=[AsyncRateLimitInterceptor("policy.yaml", store="redis://cache")])

class Greeter(GreeterServicer):
    @limited("5/minute", key=lambda rpc: rpc.message.name)
    def SayHello(self, request, context): ...
"""

from headgate.wording import requiring

with requiring("headgate.web.grpc", "grpcio", "grpc"):
    from headgate.web.grpc.aio import AsyncRateLimitInterceptor
    from headgate.web.grpc.marks import exempt, limited
    from headgate.web.grpc.rpc import Rpc
    from headgate.web.grpc.threads import RateLimitInterceptor


__all__ = ["AsyncRateLimitInterceptor", "RateLimitInterceptor", "Rpc", "exempt", "limited"]
