"""Actors on a node with a tracer: what they do for one batch has spans, whatever their class.

The class says which of its methods do that, and what for (`Worker.batches` and `batch_of`).
"""

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any

from rillnode.actors.core.delivery import Delivery
from rillnode.actors.engine.worker import Worker
from rillnode.actors.telemetry.messages import contexts_of
from rillnode.actors.telemetry.store import TracedStore

Method = Callable[..., Any]


def traced(store: TracedStore, plain: type[Worker]) -> Callable[..., Worker]:
    """Makes actors of a class that ask this store, where the class has batches to tell of."""
    kind: Any = plain  # classes can be kept by, whatever their metaclass says
    return partial(_variant(kind), store) if plain.batches else plain


@lru_cache
def _variant(plain: Any) -> Any:
    def begin(self: Any, store: TracedStore, *args: Any) -> None:
        plain.__init__(self, *args)
        self.traced_store = store

    methods = {name: _told(getattr(plain, name), reads) for name, reads in plain.batches.items()}
    about = {"__init__": begin, "__module__": __name__, "stands_for": plain}
    return type(f"Traced{plain.__name__}", (plain,), {**about, **methods})


def _told(method: Method, reads: str) -> Method:
    @wraps(method)
    def tell(self: Any, *args: Any) -> Any:
        batch = self.batch_of()
        if batch is None:
            return method(self, *args)
        delivery = args[0] if args else None
        parents = contexts_of(delivery.messages) if isinstance(delivery, Delivery) else ()
        with self.traced_store.turn(*batch, reads=reads, parents=parents) as turn:
            sent = method(self, *args)
            if sent:
                turn.part(reads).done(*sent, "")
        return sent

    return tell
