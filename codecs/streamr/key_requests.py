"""A subscriber's requests for group keys: collected, repeated, answered, given up.

The ids that one publisher's stream lacks are collected for a second and asked for together. Every
instance of a publisher may respond, and each response counts. Without all keys the request is
repeated, ever more slowly, and given up in the end.
"""

from dataclasses import dataclass, field
from typing import Final

from rillnode.codecs.streamr.encryption import Entropy
from rillnode.codecs.streamr.key_exchange import (
    EncryptedKey,
    GroupKeyErrorResponse,
    GroupKeyRequest,
    GroupKeyResponse,
)
from rillnode.codecs.streamr.key_messages import KeyEvent, KeyMessageWriter, KeysMissing
from rillnode.codecs.streamr.limits import STREAMR_KEY_IDS_MAX, STREAMR_KEY_REQUESTS_MAX

COLLECT_MS: Final = 1_000
"""How long ids are collected for one request; streamr-client 5."""

RETRY_MS: Final = 5_000
"""How long the first request waits for an answer, each later one twice as long. Own choice."""

REQUESTS_MAX: Final = 5
"""How often keys are asked for: for 155 seconds in all. Own choice."""

MISSING_MS: Final = 60_000
"""How long keys that could not be had are not asked for again. Own choice."""

_REQUEST_ID_BYTES: Final = 16

KeyName = tuple[str, str]
"""Publisher in lower case, group key id."""


@dataclass(slots=True, kw_only=True)
class _Request:
    """Keys that are asked for together, or are being collected while `sent` is 0."""

    id: str
    publisher_id: str
    stream_id: str
    deadline_ms: int
    missing: set[str] = field(default_factory=set[str])
    sent: int = 0
    refusal: tuple[str, str] = (
        "key.unanswered",
        "the publisher did not give the keys in time",
    )
    is_refused: bool = False


class KeyRequests:
    """The requests of one subscriber; times are milliseconds of a clock that never goes back.

    Args:
        writer: signs them.
        public_pem: the RSA key that is asked to be answered to.
        entropy: makes request ids.
    """

    def __init__(self, writer: KeyMessageWriter, public_pem: str, entropy: Entropy) -> None:
        self._writer = writer
        self._public_pem = public_pem
        self._entropy = entropy
        self._requests: dict[str, _Request] = {}
        self._collecting: dict[tuple[str, str], _Request] = {}
        self._asked: set[KeyName] = set()
        self._given_up: dict[KeyName, int] = {}

    @property
    def deadline_ms(self) -> int | None:
        """When `poll` has something to do; None while no key is missing."""
        return min((request.deadline_ms for request in self._requests.values()), default=None)

    def ask(self, name: KeyName, stream_id: str, now_ms: int) -> bool:
        """Have a key asked for, if it is not already; False where too many requests are open."""
        if name in self._asked:
            return True
        publisher_id, key_id = name
        request = self._collecting.get((publisher_id, stream_id))
        if request is None or len(request.missing) >= STREAMR_KEY_IDS_MAX:
            if len(self._requests) >= STREAMR_KEY_REQUESTS_MAX:
                return False
            request = _Request(
                id=self._entropy(_REQUEST_ID_BYTES).hex(),
                publisher_id=publisher_id,
                stream_id=stream_id,
                deadline_ms=now_ms + COLLECT_MS,
            )
            self._requests[request.id] = request
            self._collecting[publisher_id, stream_id] = request
        request.missing.add(key_id)
        self._asked.add(name)
        return True

    def is_given_up(self, name: KeyName, now_ms: int) -> bool:
        """Whether the key could not be had a short while ago."""
        return self._given_up.get(name, now_ms) > now_ms

    def asked_keys(self, publisher_id: str, response: GroupKeyResponse) -> list[EncryptedKey]:
        """Those of a response that its request still lacks; the first of equal ids."""
        request = self._find(publisher_id, response)
        if request is None:
            return []
        keys = {key.id: key for key in reversed(response.keys) if key.id in request.missing}
        return list(keys.values())

    def refuse(self, publisher_id: str, refusal: GroupKeyErrorResponse) -> None:
        """Note that an instance refuses. Others may still respond, but none is asked again.

        A refusal of other keys than the missing ones is of no concern: they have come meanwhile.
        """
        request = self._find(publisher_id, refusal)
        keys = refusal.group_key_ids
        if request is not None and (not keys or not request.missing.isdisjoint(keys)):
            request.refusal = (refusal.code, refusal.text)
            request.is_refused = True

    def learn(self, publisher_id: str, key_ids: set[str]) -> None:
        """Ask for these keys no more."""
        for request in list(self._requests.values()):
            if request.publisher_id == publisher_id:
                request.missing -= key_ids
                if not request.missing:
                    self._close(request)
        self._asked -= {(publisher_id, key_id) for key_id in key_ids}

    def poll(self, now_ms: int) -> list[KeyEvent]:
        """Send the requests whose time has come, or give them up."""
        events: list[KeyEvent] = []
        for request in [r for r in self._requests.values() if r.deadline_ms <= now_ms]:
            if request.is_refused or request.sent >= REQUESTS_MAX:
                events.append(self._give_up(request, now_ms))
                continue
            self._collecting.pop((request.publisher_id, request.stream_id), None)
            request.deadline_ms = now_ms + (RETRY_MS << request.sent)
            request.sent += 1
            content = GroupKeyRequest(
                request.id, request.stream_id, self._public_pem, tuple(sorted(request.missing))
            )
            events.append(self._writer.write(request.publisher_id, content, now_ms))
        return events

    def _find(
        self, publisher_id: str, answer: GroupKeyResponse | GroupKeyErrorResponse
    ) -> _Request | None:
        """The request that this publisher was asked, if it is still open."""
        request = self._requests.get(answer.request_id)
        if request is None:
            return None
        asked = (request.publisher_id, request.stream_id)
        return request if asked == (publisher_id, answer.stream_id) else None

    def _give_up(self, request: _Request, now_ms: int) -> KeysMissing:
        publisher_id = request.publisher_id
        self._close(request)
        self._given_up = {name: end for name, end in self._given_up.items() if end > now_ms}
        for key_id in request.missing:
            self._asked.discard((publisher_id, key_id))
            self._given_up[publisher_id, key_id] = now_ms + MISSING_MS
        code, text = request.refusal
        return KeysMissing(
            publisher_id=publisher_id,
            stream_id=request.stream_id,
            group_key_ids=tuple(sorted(request.missing)),
            code=code,
            text=text,
        )

    def _close(self, request: _Request) -> None:
        del self._requests[request.id]
        collected = (request.publisher_id, request.stream_id)
        if self._collecting.get(collected) is request:
            del self._collecting[collected]
