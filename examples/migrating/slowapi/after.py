"""An API for notes."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from headgate.web.fastapi import RateLimitExceeded, RateLimits, exempt, limited

app = FastAPI()
limits = RateLimits(app, default="100/minute")


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, error: RateLimitExceeded):
    return JSONResponse({"error": "too many requests"}, 429, error.headers)


@app.post("/register")
@limited("5/minute")
async def register(name: str):
    return {"name": name}


@app.get("/notes/{note}")
@limited("10/minute", key={"header": "x-api-key"})
async def read(note: int):
    return {"note": note}


@app.get("/health")
@exempt
async def health():
    return "well"
