"""The types of RSGI, the interface of granian."""

from granian.rsgi import (  # type: ignore[attr-defined] # granian does not mark them as its own
    HTTPProtocol,
    ProtocolClosed,
    Scope,
)

__all__ = ["HTTPProtocol", "ProtocolClosed", "Scope"]
