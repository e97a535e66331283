"""A gateway that counts the requests and the tokens of each customer."""

from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import StreamingResponse
from model import answer

from headgate.web.fastapi import RateLimits, limited

CUSTOMERS = {"ann-1", "ben-2"}
API_KEY = {"header": "x-api-key"}
GUESSES = {"name": "guesses", "key": "ip", "limits": "20/minute", "count": {"when": {"status": 401}}}

app = FastAPI()
limits = RateLimits(app, {"rules": [GUESSES]})


def customer(x_api_key: Annotated[str, Header()]):
    if x_api_key not in CUSTOMERS:
        raise HTTPException(401)


@app.post("/chat", dependencies=[Depends(customer)])
@limited("10/hour", name="requests", key=API_KEY)
@limited("2000/day", name="tokens", key=API_KEY, cost=500)
async def chat(request: Request, prompt: Annotated[str, Body(embed=True)]):
    async def stream():
        used = len(prompt.split())
        try:
            async for word in answer(prompt):
                used += 1
                yield word
        finally:
            request.state.rate_limit.settle(tokens=used)

    return StreamingResponse(stream(), media_type="text/plain")
