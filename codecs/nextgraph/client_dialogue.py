"""The client's side of a connection: the mirror image of `broker_dialogue`.

Source: nextgraph-rs 9ea23f60, engine/net/src/connection.rs; recorded connections of real clients.
"""

from msgspec import Struct

from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.admin import AdminRequest, AdminResponse
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.dialogue import Dialogue, out_of_place
from rillnode.codecs.nextgraph.external import ExtRequest, ExtResponse
from rillnode.codecs.nextgraph.messages import AppMessage, ProtocolMessage, encode_message
from rillnode.codecs.nextgraph.noise_xk import MESSAGE_2_BYTES, Handshake, read_clear, write_noise
from rillnode.codecs.nextgraph.start import (
    AppHello,
    AppResponse,
    AuthResult,
    ClientAuthContent,
    ClientHello,
    ClientInfo,
    Noise,
    Registration,
    ServerHello,
    Start,
    sign_client_auth,
)


class ClientLogin(Struct, frozen=True, kw_only=True):
    """To come as a client.

    Attributes:
        user: who it speaks for.
        client: the client's own key.
        info: what it is.
        registration: a wish to be registered; None if the user is known.
    """

    user: Identity
    client: Identity
    info: ClientInfo
    registration: Registration | None = None


class AppLogin(Struct, frozen=True, kw_only=True):
    """To come as an app whose verifier the broker runs."""

    user: bytes | None
    info: ClientInfo


FromBroker = AuthResult | AppResponse | AdminResponse | ExtResponse | ClientMessage | AppMessage


class ClientDialogue(Dialogue[FromBroker]):
    """The client's side, whose first output is there at once.

    Its owner gets AuthResult or AppResponse, and after one with result 0 the broker's messages; or
    the answer to its only request.
    """

    def __init__(
        self,
        peer: Identity,
        broker: bytes,
        purpose: ClientLogin | AppLogin | AdminRequest | ExtRequest,
        *,
        ephemeral: bytes | None = None,
    ) -> None:
        """Begin.

        Args:
            peer: the key of this connection, which is the publisher of events sent on it.
            broker: the broker's peer key, Ed25519.
            purpose: what the connection is for.
            ephemeral: for tests with fixed bytes.

        Raises:
            CodecError: `key.point`, the broker's key is none.
        """
        super().__init__(Handshake.initiator(peer, broker, ephemeral), self._introduction)
        self._purpose = purpose
        self._output.append(write_noise(self._handshake.write()))

    def _introduction(self, frame: bytes) -> None:
        message = read_clear(frame)
        if not isinstance(message, Noise):
            raise out_of_place(message)
        self._handshake.read(message.data, MESSAGE_2_BYTES)
        last = Noise(self._handshake.write())
        self._establish()
        match self._purpose:
            case ClientLogin():
                self._output.append(encode_message(Start(ClientHello(last))))
                self._state = self._greeting
            case AppLogin(user=user, info=info):
                self._output.append(encode_message(Start(AppHello(last, user, info))))
                self._state = self._admission
            case AdminRequest() | ExtRequest() as request:
                self._output.append(encode_message(last))
                self._say(Start(request))
                self._state = self._answer

    def _greeting(self, frame: bytes) -> None:
        hello = self._open(frame)
        if not isinstance(hello, ServerHello):
            raise out_of_place(hello)
        login = self._purpose
        assert isinstance(login, ClientLogin)
        content = ClientAuthContent(
            login.user.public_key,
            login.client.public_key,
            login.info,
            login.registration,
            hello.nonce,
        )
        self._say(sign_client_auth(content, login.user, login.client))
        self._state = self._admission

    def _admission(self, frame: bytes) -> AuthResult | AppResponse:
        verdict = self._open(frame)
        if isinstance(verdict, Start):
            content = verdict.content
            if isinstance(content, AppResponse) and isinstance(self._purpose, AppLogin):
                return self._enter(content)
        elif isinstance(verdict, AuthResult) and isinstance(self._purpose, ClientLogin):
            return self._enter(verdict)
        raise out_of_place(verdict)

    def _enter(self, verdict: AuthResult | AppResponse) -> AuthResult | AppResponse:
        self._state = self._ended if verdict.result else self._message
        return verdict

    def _answer(self, frame: bytes) -> AdminResponse | ExtResponse:
        answer = self._open(frame)
        expected = AdminResponse if isinstance(self._purpose, AdminRequest) else ExtResponse
        if not isinstance(answer, expected):
            raise out_of_place(answer)
        self._state = self._ended
        return answer

    def _message(self, frame: bytes) -> ClientMessage | AppMessage:
        message: ProtocolMessage = self._open(frame)
        expected = ClientMessage if isinstance(self._purpose, ClientLogin) else AppMessage
        if not isinstance(message, expected):
            raise out_of_place(message)
        return message
