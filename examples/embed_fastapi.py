"""A FastAPI application with a node inside: orders are accepted once they are on disk.

    DATA=orders-data uvicorn --app-dir examples embed_fastapi:app
    curl -d '{"item": "tea", "count": 2}' -H 'Content-Type: application/json' localhost:8000/orders

One worker process only: a store belongs to one process.
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from rillnode import Config, Node, RillnodeError, Stream


class Order(BaseModel):
    """An order of a customer."""

    item: str
    count: int = 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Start the node with the application, and drain it at its end."""
    data = os.environ.get("DATA", "orders-data")
    async with Node(Config.embedded(data)) as node:
        app.state.orders = await node.stream("orders")
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def add(order: Order, request: Request) -> dict[str, int]:
    """Take an order; its number is its index in the stream."""
    orders: Stream = request.app.state.orders
    try:
        return {"number": await orders.push(order.model_dump_json().encode())}
    except RillnodeError as error:  # the disk is full, say: nothing was taken
        raise HTTPException(503, error.code) from error


@app.get("/orders")
async def listed(request: Request, start: int = 0, limit: int = 100) -> list[dict[str, Any]]:
    """The orders from a number on."""
    orders: Stream = request.app.state.orders
    entries = await orders.pull(start, limit)
    return [{"number": entry.index, **json.loads(entry.data)} for entry in entries]
