"""A syslog receiver, as a process that a test can kill: ``receiver.py KIND PLACE FILE``.

KIND is tcp, tls, udp, unix or deaf (tcp, but reads nothing). It writes each message to FILE, a line
of hex each, and prints a line when it listens.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
from pathlib import Path
from typing import BinaryIO


def main(kind: str, place: str, file: str) -> None:
    with Path(file).open("ab", buffering=0) as out:
        if kind in ("udp", "unix"):
            _datagrams(kind, place, out)
        else:
            _streams(kind, int(place), out)


def _datagrams(kind: str, place: str, out: BinaryIO) -> None:
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as listening:
        listening.bind(place if kind == "unix" else ("127.0.0.1", int(place)))
        print("listening", flush=True)
        while True:
            out.write(listening.recv(70_000).hex().encode() + b"\n")


def _streams(kind: str, port: int, out: BinaryIO) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        print("listening", flush=True)
        while True:
            connected, _ = listening.accept()
            if kind == "deaf":
                time.sleep(600)
            if kind == "tls":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(Path(out.name).with_name("cert.pem"))
                connected = context.wrap_socket(connected, server_side=True)
            with connected, connected.makefile("rb") as lines:
                while message := _framed(lines):
                    out.write(message.hex().encode() + b"\n")


def _framed(lines: BinaryIO) -> bytes:
    """Return the next message of a stream: its length in octets, a space, itself."""
    length = b""
    while (octet := lines.read(1)).isdigit():
        length += octet
    return lines.read(int(length)) if length else b""


if __name__ == "__main__":
    main(*sys.argv[1:])
