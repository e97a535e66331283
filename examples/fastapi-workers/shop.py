"""A shop whose limits hold over all of its workers."""

import os

from fastapi import FastAPI, HTTPException

from headgate.web.fastapi import RateLimits, exempt, limited

app = FastAPI()
limits = RateLimits(app, default="100/minute", store="shared:///dev/shm/shop")


@app.get("/")
def index():
    return {"worker": os.getpid()}


@app.post("/login")
@limited("5/minute by sliding-log", count={"when": {"status": 401}})
def login(password: str):
    if password != "right":
        raise HTTPException(401)
    return "welcome"


@app.get("/health")
@exempt
def health():
    return "well"
