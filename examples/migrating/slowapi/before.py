"""An API for notes."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from slowapi import Limiter
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware
from slowapi.util import get_remote_address


def api_key(request: Request):
    return request.headers.get("x-api-key") or get_remote_address(request)


limiter = Limiter(key_func=get_remote_address, default_limits=["100/minute"])
app = FastAPI()
app.state.limiter = limiter
app.add_middleware(SlowAPIMiddleware)


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, error: RateLimitExceeded):
    return JSONResponse({"error": "too many requests"}, 429)


@app.post("/register")
@limiter.limit("5/minute")
async def register(request: Request, name: str):
    return {"name": name}


@app.get("/notes/{note}")
@limiter.limit("10/minute", key_func=api_key)
async def read(request: Request, note: int):
    return {"note": note}


@app.get("/health")
@limiter.exempt
async def health():
    return "well"
