"""TLS of the listeners that speak HTTP."""

import ssl

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.listener_tables import WebListener


def tls_context(table: WebListener, name: str) -> ssl.SSLContext | None:
    """What a listener's table says of TLS; None where it says nothing.

    Args:
        table: the listener's table.
        name: of the table, for the error.

    Raises:
        ConfigError: the certificate or its key cannot be used.
    """
    if table.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(table.tls_cert, table.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "config.tls", f"{name}.tls_cert: {table.tls_cert} cannot be used: {error}"
        ) from None
    return context
