"""Becomes the command: joins its control groups, moves into a network of its own, and executes it.

It is run as a file, by ``python -I -S``, and imports nothing but the standard library. Its first
argument is JSON; the rest is the command:

- ``groups``: files that it writes its pid to;
- ``socket``: where a network of its own is wanted, the descriptor of a Unix socket. Over it go the
  device through which all of the command's traffic to itself passes, and then a listening socket
  for each of ``listen``, hosts under 127/8 and ports; or, where that fails, the reason.

In its network namespace, packets from the command to itself take a way out over a TUN device and
come back over it, so whoever holds the device (:mod:`lab.matrix.faults.wire`) can delay, limit
and drop them. The kernel needs no netem for it. Nothing outside can be reached from there.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_DEVICE = "wire0"
_ADDRESS = "10.87.0.1"
_TABLE = "87"
#: As much as a TCP socket sends at once: a link that is slow makes queues, not losses in the host.
_QUEUE_PACKETS = 5_000
#: What a shell says of a command that could not be executed.
_NOT_FOUND = 127
_NOT_RUNNABLE = 126
#: The room could not be made.
_NO_ROOM = 125

_IP = f"""
link set lo up
addr add {_ADDRESS}/24 dev {_DEVICE}
link set {_DEVICE} up mtu 1500 txqueuelen {_QUEUE_PACKETS}
route add 10.87.0.0/24 dev {_DEVICE} table {_TABLE}
route add 127.0.0.0/8 dev {_DEVICE} table {_TABLE} src 127.0.0.1
rule add pref 10 iif {_DEVICE} lookup local
rule add pref 20 iif lo to 10.87.0.0/24 lookup {_TABLE}
rule add pref 21 iif lo to 127.0.0.0/8 lookup {_TABLE}
rule add pref 30 lookup local
rule del pref 0
"""
#: What comes back over the device has addresses of our own, which is refused otherwise.
_SYSCTLS = {
    "ipv4/conf/all/rp_filter": "0",
    f"ipv4/conf/{_DEVICE}/rp_filter": "0",
    "ipv4/conf/all/accept_local": "1",
    f"ipv4/conf/{_DEVICE}/accept_local": "1",
    "ipv4/conf/all/route_localnet": "1",
    f"ipv4/conf/{_DEVICE}/route_localnet": "1",
    # What finds no IPv6 takes IPv4, which passes the device.
    "ipv6/conf/all/disable_ipv6": "1",
}


def _leave() -> None:
    """Move this process to a new network namespace; without root, to a user namespace as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, f"a network namespace: {os.strerror(error)}")
    if flags & _CLONE_NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _make_device() -> int:
    handle = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN_NO_PI))
    return handle


def _lay_ways() -> None:
    done = subprocess.run(
        ["ip", "-batch", "-"],  # noqa: S607 - where it is differs
        input=_IP,
        text=True,
        capture_output=True,
        check=False,
        # Users who are not root seldom have these in their path.
        env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
    )
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()}")
    for name, value in _SYSCTLS.items():
        path = Path("/proc/sys/net") / name
        if path.exists():
            path.write_text(value)


def _listening(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.bind((host, port))
    made.listen(64)
    return made


def _make_room(told: socket.socket, listen: list[tuple[str, int]]) -> None:
    _leave()
    device = _make_device()
    _lay_ways()
    listening = [_listening(host, port) for host, port in listen]
    socket.send_fds(told, [b"made"], [device, *(each.fileno() for each in listening)])
    # The command is to come after whoever holds the device is there: it says so with one byte.
    told.recv(1)


def main(options: dict[str, Any], command: list[str]) -> int:
    """Become the command. Returns only where that fails: the exit code."""
    for path in options["groups"]:
        Path(path).write_text(str(os.getpid()))
    if options["socket"] is not None:
        told = socket.socket(fileno=options["socket"])
        try:
            _make_room(told, options["listen"])
        except OSError as error:
            told.send(str(error).encode())
            return _NO_ROOM
        told.close()
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command of whoever runs us
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: not found\n")
        return _NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_RUNNABLE


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
