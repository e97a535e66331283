"""Stands for a provider: an answer that comes word by word, and each word is a token."""

import asyncio


async def answer(prompt):
    for word in f"You said: {prompt}".split():
        await asyncio.sleep(0.01)
        yield word + " "
