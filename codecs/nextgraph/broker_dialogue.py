"""The broker's side of a connection.

    client -> broker                               broker -> client
    Noise(message 1)                               Noise(message 2)
    Start(ClientHello(message 3))                  ServerHello          sealed from here on
    ClientAuth                                     AuthResult
    ClientMessage ...                              ClientMessage ...

Others come the same way and part at the third message: an app with `Start(AppHello(message 3))`,
answered with AppResponse and followed by AppMessages; administrators and external ones with a plain
`Noise(message 3)` and one sealed `Start`, whose answer ends the connection. A `Probe` instead of
the first message is answered in clear.

Source: nextgraph-rs 9ea23f60, engine/net/src/connection.rs; recorded connections of real clients.
"""

from hmac import compare_digest
from typing import Final

from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.admin import AdminRequest, AdminResponse, admin_request_holds
from rillnode.codecs.nextgraph.client import ClientEvent, ClientMessage
from rillnode.codecs.nextgraph.dialogue import Dialogue, out_of_place
from rillnode.codecs.nextgraph.external import ExtRequest, ExtResponse
from rillnode.codecs.nextgraph.messages import AppMessage, encode_message
from rillnode.codecs.nextgraph.noise_xk import (
    MESSAGE_1_BYTES,
    MESSAGE_3_BYTES,
    Handshake,
    read_clear,
    write_noise,
)
from rillnode.codecs.nextgraph.requests import ClientRequest
from rillnode.codecs.nextgraph.responses import ClientResponse
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode
from rillnode.codecs.nextgraph.start import (
    PROBE_MAGIC,
    PROBE_RESPONSE_MAGIC,
    AppHello,
    AppResponse,
    AuthResult,
    ClientAuth,
    ClientHello,
    Noise,
    Probe,
    ProbeResponse,
    ServerHello,
    Start,
    client_auth_holds,
)

PROBE_CLOSE_SECONDS: Final = 2.0
"""How long after the answer to a probe the connection is closed."""

NONCE_BYTES: Final = 32

FromClient = Probe | ClientAuth | AppHello | AdminRequest | ExtRequest | ClientMessage | AppMessage


class BrokerDialogue(Dialogue[FromClient]):
    """The broker's side.

    What its owner gets, and owes:

    | message | owner |
    |---|---|
    | ClientAuth, proved; AppHello | `admit` or `refuse` |
    | AdminRequest, its signature checked; ExtRequest | `answer`, then close normally |
    | ClientMessage of who is admitted: ClientRequest, id above 0; ClientEvent | responses |
    | AppMessage of who is admitted | whatever apps expect |
    | Probe | close after `PROBE_CLOSE_SECONDS` |
    """

    def __init__(
        self,
        peer: Identity,
        *,
        nonce: bytes,
        discoverable: bool = False,
        ephemeral: bytes | None = None,
    ) -> None:
        """Expect a client.

        Args:
            peer: the broker's peer key.
            nonce: 32 random bytes, fresh for each connection.
            discoverable: whether a probe is told the peer key.
            ephemeral: for tests with fixed bytes.
        """
        super().__init__(Handshake.responder(peer, ephemeral), self._greeting)
        self._peer = peer
        self._nonce = nonce
        self._discoverable = discoverable
        self._applicant: ClientAuth | AppHello | None = None

    def admit(self) -> None:
        """Let the client or app in that asked last."""
        if isinstance(self._applicant, ClientAuth):
            self._say(AuthResult(ProtocolCode.NO_ERROR))
            self._state = self._client
        else:
            assert self._applicant is not None, "nobody has asked"
            self._say(Start(AppResponse(ProtocolCode.NO_ERROR)))
            self._state = self._app
        self._applicant = None

    def refuse(self, code: ProtocolCode) -> None:
        """Turn the client or app away that asked last; then close with the code's `close_code`."""
        assert self._applicant is not None, "nobody has asked"
        is_client = isinstance(self._applicant, ClientAuth)
        self._say(AuthResult(code) if is_client else Start(AppResponse(code)))
        self._applicant = None
        self._state = self._ended

    def answer(self, response: AdminResponse | ExtResponse) -> None:
        """Answer the only request of an administrator or an external one."""
        self._say(response)

    def _greeting(self, frame: bytes) -> Probe | None:
        match read_clear(frame):
            case Noise(data=data):
                self._handshake.read(data, MESSAGE_1_BYTES)
                self._output.append(write_noise(self._handshake.write()))
                self._state = self._introduction
                return None
            case Probe() as probe:
                if probe.magic != PROBE_MAGIC:
                    raise NextGraphError(ProtocolCode.WHERE_IS_THE_MAGIC, "the probe is none")
                shown = self._peer.public_key if self._discoverable else None
                self._output.append(encode_message(ProbeResponse(PROBE_RESPONSE_MAGIC, shown)))
                self._state = self._ended
                return probe
            case message:
                raise out_of_place(message)

    def _introduction(self, frame: bytes) -> AppHello | None:
        match read_clear(frame):
            case Start(content=ClientHello(noise=Noise(data=data))):
                self._finish(data)
                self._say(ServerHello(self._nonce))
                self._state = self._proof
            case Noise(data=data):
                self._finish(data)
                self._state = self._request
            case Start(content=AppHello() as hello):
                self._finish(hello.noise.data)
                self._await_verdict(hello)
                return hello
            case message:
                raise out_of_place(message)
        return None

    def _finish(self, data: bytes) -> None:
        self._handshake.read(data, MESSAGE_3_BYTES)
        self._establish()

    def _proof(self, frame: bytes) -> ClientAuth:
        auth = self._open(frame)
        if not isinstance(auth, ClientAuth):
            raise out_of_place(auth)
        if not compare_digest(auth.content.nonce, self._nonce):
            raise NextGraphError(ProtocolCode.INVALID_NONCE, "the proof is not for this connection")
        if not client_auth_holds(auth):
            self._say(AuthResult(ProtocolCode.INVALID_SIGNATURE))
            raise NextGraphError(ProtocolCode.INVALID_SIGNATURE, "the client proves nothing")
        self._await_verdict(auth)
        return auth

    def _await_verdict(self, applicant: ClientAuth | AppHello) -> None:
        self._applicant = applicant
        self._state = self._ended

    def _request(self, frame: bytes) -> AdminRequest | ExtRequest:
        match self._open(frame):
            case Start(content=AdminRequest() | ExtRequest() as request):
                if isinstance(request, AdminRequest) and not admin_request_holds(request):
                    text = "the administrator's signature does not hold"
                    raise NextGraphError(ProtocolCode.INVALID_SIGNATURE, text)
                self._state = self._ended
                return request
            case message:
                raise out_of_place(message)

    def _client(self, frame: bytes) -> ClientMessage:
        match self._open(frame):
            case ClientMessage(content=ClientRequest() as request) as message if request.id > 0:
                return message
            case ClientMessage(content=ClientEvent()) as message:
                return message
            case ClientMessage(content=ClientResponse()):
                raise NextGraphError(ProtocolCode.ACTOR_ERROR, "nobody has asked for this response")
            case message:
                raise out_of_place(message)

    def _app(self, frame: bytes) -> AppMessage:
        message = self._open(frame)
        if not isinstance(message, AppMessage):
            raise out_of_place(message)
        return message
