"""What the output of a command says of how its work ended. Pure.

Python prints exceptions, CUDA, NCCL and PyTorch print errors, each in words of their own, which are
told apart here. Of exceptions that were raised one out of the other the first that is of something
outside of the program counts. What a rank says that waited for the others only tells that one of
them was gone, so what any rank says of itself counts before it. Where none says anything of itself,
and the node that ended first says nothing of others either, it was that one: it ended by itself.

Nothing of a message is kept: it may hold what only its job's people may read. The evidence is the
name of an exception, or words from here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from admission.core.failures import Kind

__all__ = ["Output", "Said", "said_of"]


@dataclass(frozen=True, slots=True)
class Output:
    """The end of what a command said on one node. ``is_lost``: what became of it is not known."""

    node: str
    text: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What says most of how the work of an attempt ended, and on which node that was said.

    ``before_s`` is how long before its end it had stood still, s.
    """

    kind: Kind
    node: str
    text: str
    before_s: float = 0.0


#: Of several, the first says what it was.
_ORDER = {
    kind: place
    for place, kind in enumerate(
        (Kind.TOLD_MEMORY, Kind.TOLD_NVLINK, Kind.TOLD_GPU, Kind.STORAGE, Kind.EXCEPTION,
         Kind.CONNECTION, Kind.NODE_LOST, Kind.BROKEN, Kind.UNCLEAR, Kind.HUNG)
    )
}  # fmt: skip
#: What is said of others.
_OF_PEERS = frozenset({Kind.BROKEN, Kind.HUNG})
#: Within exceptions that follow from each other, the program's own is the last resort.
_OUTSIDE_FIRST = _ORDER | {Kind.EXCEPTION: len(_ORDER)}

_RANK = re.compile(r"^\[?(?:rank|default)(\d+)\]?:\s?", re.IGNORECASE)
_EXCEPTION = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Failure|Interrupt|Timeout))(?::\s*(.*)|)$"
)
_FOLLOWS = re.compile(r"^(?:During handling of the above|The above exception was the direct cause)")
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")
#: Lines after that of an exception that still belong to its message.
_MESSAGE_LINES = 6

#: CUDA's error strings for faults of the device, of NVLink and of device memory (CUDA Runtime API,
#: cudaError), and what NVML says of a device that is gone.
_DEVICE = (
    (re.compile(r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE"), Kind.TOLD_MEMORY,
     "CUDA: uncorrectable memory error"),
    (re.compile(r"uncorrectable NVLink error|peer GPU memory over nvlink|NVLINK_UNCORRECTABLE"),
     Kind.TOLD_NVLINK, "CUDA: uncorrectable NVLink error"),
    (re.compile(r"system not yet initialized|cudaErrorSystemNotReady"), Kind.TOLD_NVLINK,
     "CUDA: the fabric of the node is not ready"),
    (re.compile(r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable"),
     Kind.TOLD_GPU, "CUDA: a device is not available"),
    (re.compile(r"GPU is lost|GPU_IS_LOST|fallen off the bus|no CUDA-capable device is detected"),
     Kind.TOLD_GPU, "CUDA: a device is gone"),
    (re.compile(r"CUDA error: unknown error|cudaErrorUnknown"), Kind.UNCLEAR,
     "CUDA: unknown error"),
    (re.compile(r"unhandled cuda error|ncclUnhandledCudaError"), Kind.UNCLEAR,
     "NCCL: a call of CUDA failed"),
)  # fmt: skip
#: What C++ says of a CUDA error that nobody caught, in a program or in a thread of PyTorch.
_THROWN = re.compile(r"(?:what\(\):|terminated with exception:) .*?CUDA error: (.*)")
#: A collective that nobody ended in time.
_HUNG = re.compile(
    r"caught collective operation timeout|collective operation timeout|"
    r"watchdog thread terminated|Timed out waiting \d+ ?ms"
)
_STOOD_STILL = re.compile(r"ran for (\d{1,12}) milliseconds before timing out")
#: A collective that broke: NCCL's results for a peer or a connection that is gone, its warnings of
#: InfiniBand and sockets, and those of Gloo and of PyTorch's store.
_BROKEN = re.compile(
    r"ncclRemoteError|ncclSystemError|remote process exited or there was a network error|"
    r"unhandled system error|NET/(?:IB|Socket) ?:.*(?:Got completion|Got async event|error|failed)|"
    r"socket\w+: .*(?:failed|closed|timed out)|Connection closed by (?:remote )?peer|"
    r"NCCL communicator was aborted|recvValue failed|sendBytes failed"
)
#: Exceptions of PyTorch's store and of its rendezvous, which one of the peers keeps.
_OF_STORES = frozenset({
    "DistNetworkError", "DistStoreError", "RendezvousConnectionError", "RendezvousTimeoutError",
})  # fmt: skip
#: Exceptions of launchers: that a rank has ended. What it ended of stands elsewhere.
_LAUNCHERS = frozenset({"ChildFailedError", "ProcessExitedException", "SignalException"})
#: Libraries of object stores; numbers of errors of file systems: EIO, EROFS, ENOTCONN, ESTALE,
#: EREMOTEIO (errno of Linux).
_STORES = ("botocore.", "boto3.", "s3fs.", "google.cloud.storage", "azure.", "minio.")
_STORAGE_ERRNOS = frozenset({5, 30, 107, 116, 121})
#: Names of exceptions for connections, of Python and of its common HTTP libraries; numbers of
#: errors: ENETDOWN to ENETRESET, ECONNABORTED, ECONNRESET, ETIMEDOUT to EHOSTUNREACH, EAI_AGAIN.
_CONNECTIONS = frozenset({
    "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "ConnectionAbortedError",
    "BrokenPipeError", "ConnectError", "ConnectTimeout", "ConnectTimeoutError", "ReadTimeout",
    "ReadTimeoutError", "MaxRetryError", "NewConnectionError", "NameResolutionError",
    "ProtocolError", "RemoteDisconnected", "ServerDisconnectedError", "ClientConnectorError",
    "IncompleteRead", "gaierror", "SSLEOFError",
})  # fmt: skip
_CONNECTION_ERRNOS = frozenset({-3, 100, 101, 102, 103, 104, 110, 111, 112, 113})


def said_of(outputs: Iterable[Output]) -> Said | None:
    """Return what says most of how the work ended, by the output of its nodes; None: nothing does.

    Outputs are in the order in which their nodes ended: of two that say the like, the first counts.
    """
    outputs = list(outputs)
    found = [
        Said(kind, output.node, text, before_s)
        for output in outputs
        for kind, text, before_s in _found(output)
    ]
    if not found:
        return None
    most, first = min(found, key=lambda each: _ORDER[each.kind]), outputs[0].node
    if most.kind in _OF_PEERS and all(each.node != first for each in found):
        return Said(Kind.EXIT, first, "it ended by itself, and others say that a peer was gone")
    return most


def _found(output: Output) -> Iterator[tuple[Kind, str, float]]:
    if output.is_lost:
        yield Kind.NODE_LOST, "what became of it is not known", 0.0
    if _HUNG.search(output.text):
        still = [int(each) / 1000.0 for each in _STOOD_STILL.findall(output.text)]
        yield Kind.HUNG, "a collective was not done in time", max(still, default=0.0)
    if _BROKEN.search(output.text):
        yield Kind.BROKEN, "a collective broke: a peer or the way to it was gone", 0.0
    for message in _THROWN.findall(output.text):
        thrown = _of_exception(("CUDA error", f"CUDA error: {message}"))
        if thrown is not None:
            yield (*thrown, 0.0)
    by_rank: dict[str, list[str]] = defaultdict(list)
    for line in output.text.splitlines():
        rank = _RANK.match(line)
        by_rank[rank[1] if rank else ""].append(line[rank.end() :] if rank else line)
    for lines in by_rank.values():
        kinds = [each for each in map(_of_exception, _last_chain(lines)) if each is not None]
        if kinds:
            yield (*min(kinds, key=lambda each: _OUTSIDE_FIRST[each[0]]), 0.0)


def _last_chain(lines: list[str]) -> list[tuple[str, str]]:
    """Return the last exceptions that followed from each other: their names and messages."""
    chain: list[tuple[str, str]] = []
    follows = False
    for place, line in enumerate(lines):
        follows = follows or bool(_FOLLOWS.match(line))
        found = _EXCEPTION.match(line.rstrip())
        if found is None or found[1].rpartition(".")[2] in _LAUNCHERS:
            continue
        message = "\n".join([found[2] or "", *lines[place + 1 : place + _MESSAGE_LINES]])
        chain = [*chain, (found[1], message)] if follows else [(found[1], message)]
        follows = False
    return chain


def _of_exception(exception: tuple[str, str]) -> tuple[Kind, str] | None:
    """Return what an exception is of; None: only of others, which are told of elsewhere."""
    name, message = exception
    for pattern, kind, words in _DEVICE:
        if pattern.search(message):
            return kind, words
    short, errors = name.rpartition(".")[2], set(map(int, _ERRNO.findall(message)))
    if name.startswith(_STORES) or errors & _STORAGE_ERRNOS:
        return Kind.STORAGE, short[:60]
    if short in _CONNECTIONS or errors & _CONNECTION_ERRNOS:
        return Kind.CONNECTION, short[:60]
    if short in _OF_STORES:
        return Kind.BROKEN, short[:60]
    if short == "DistBackendError" or _BROKEN.search(message) or _HUNG.search(message):
        return None
    return Kind.EXCEPTION, short[:60]
