"""What published interruptions of Llama 3 leave on a node: the judge of attribution.

Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783), Table 5: root causes of 419
unexpected interruptions in 54 days of 16,384 H100. The counts come to 419 and are what is used. The
percentage that is printed beside the first of them (30.1) is that of 126, as is the 58.7 % of GPUs
in its text: of the counts they are 64.0 %.

**The rule** is that of :mod:`bench.failures_evidence`. What is here was written when the reader of
output and the order of signs were committed, and neither changed after. ``expected`` follows the
paper's own category: its GPU and host are hardware, network is network, dependency is software,
unplanned maintenance and unknown are unknown. So a network card, which is of the host there, is
expected as hardware, however much its failure looks like the network's.

Faces of a failure of a GPU are those of NVIDIA's catalog of Xid errors for what the paper names,
and, as the paper says that failures of links often stall kernels without an error, a collective
that hangs, with and without an error in the log. Of a host that failed nothing is left but that it
is gone: Headroom reads no machine checks.
"""

from __future__ import annotations

from admission.core.failures import Cause
from bench.failures_evidence import PEER_GONE, WATCHDOG, Reason, Trace, cuda, launcher, raised, xid

__all__ = ["LLAMA_3"]

_GPUS = 16_384
_HUNG = {"output": WATCHDOG, "peers": WATCHDOG, "exit_code": 134, "before_s": 640.0}
#: What C++ says where a thread of PyTorch meets an error first, before frames that fill the rest.
_FRAMES = "".join(
    f"[rank5]: frame #{number}: c10d::ProcessGroupNCCL::run() + 0x{number}0 (libtorch_cuda.so)\n"
    for number in range(12)
)


def _thrown(error: str) -> str:
    return (
        "[rank5]:[E127 10:02:09.884 ProcessGroupNCCL.cpp:1414] [PG ID 0 PG GUID 0 Rank 5] Process "
        f"group watchdog thread terminated with exception: CUDA error: {error}\n"
        f"{_FRAMES}" + launcher(-6, 5)
    )


def _hangs(code: int, said: str) -> Trace:
    return Trace(kernel=(xid(code, said),), **_HUNG)  # type: ignore[arg-type]


def _gpu(name: str, count: int, *traces: Trace) -> Reason:
    return Reason(name, "GPU", count, _GPUS, 0.0, Cause.HARDWARE, traces)


def _host(name: str, count: int, *traces: Trace) -> Reason:
    return Reason(name, "Host", count, _GPUS, 0.0, Cause.HARDWARE, traces)


_ALL_WAIT = Trace(**_HUNG)  # type: ignore[arg-type]
_LOST, _LOST_AND_HUNG = Trace(peers=PEER_GONE, is_lost=True), Trace(peers=WATCHDOG, is_lost=True)
_OFF_THE_BUS = xid(79, "GPU has fallen off the bus.")
_RETRIES = raised(
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils."
    "cpp:94, remote process exited or there was a network error, NCCL version 2.21.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\nLast error:\nNET/IB: Got completion from peer 10.8.4.31<40112> with status=12 "
    "opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.8.4.12 remoteGids::ffff:10.8.4.31 "
    "hca mlx5_6",
    rank=6,
)
LLAMA_3: tuple[Reason, ...] = (
    _gpu(
        "Faulty GPU", 148,
        Trace(_thrown("unknown error"), PEER_GONE, exit_code=134, kernel=(_OFF_THE_BUS,)),
        _hangs(79, "GPU has fallen off the bus."),
        _hangs(74, "NVLink: fatal error detected on link 9(0x10000, 0x0, 0x0, 0x0)"),
        Trace(
            _thrown("uncorrectable NVLink error detected during the execution"), PEER_GONE,
            exit_code=134,
        ),
        Trace(
            cuda("unspecified launch failure"), PEER_GONE,
            kernel=(xid(62, "Internal micro-controller halt (newer drivers)"),),
        ),
        _ALL_WAIT,
    ),
    _gpu(
        "GPU HBM3 Memory", 72,
        Trace(
            cuda("uncorrectable ECC error encountered"), PEER_GONE,
            kernel=(
                xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU"),
                xid(63, "Row Remapper: New row (0x000000000c3a1f00) marked for remapping"),
            ),
        ),
        Trace(
            _thrown("uncorrectable ECC error encountered"), PEER_GONE, exit_code=134,
            kernel=(xid(95, "Uncontained: FBHUB. RST: Yes, D-RST: No"),),
        ),
        Trace(
            cuda("uncorrectable ECC error encountered"), PEER_GONE,
            kernel=(xid(64, "Row Remapper: Failed to remap row"),),
        ),
        Trace(_thrown("uncorrectable ECC error encountered"), PEER_GONE, exit_code=134),
    ),
    Reason(
        "Software Bug", "Dependency", 54, _GPUS, 0.0, Cause.SOFTWARE,
        (
            Trace(raised("RuntimeError: Expected to have finished reduction in the prior iteration "
                         "before starting a new one."), PEER_GONE),
            Trace(raised("AssertionError: loader state of rank 7 is at step 812, not 813"),
                  PEER_GONE),
            Trace(
                _thrown("an illegal memory access was encountered"), PEER_GONE, exit_code=134,
                kernel=(xid(31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"),),
            ),
            # A crash in a library: it says no more than that it was killed by a signal.
            Trace("Fatal Python error: Segmentation fault\n" + launcher(-11, 2), PEER_GONE,
                  exit_code=139),
            _ALL_WAIT,
        ),
    ),
    Reason(
        "Network Switch/Cable", "Network", 35, _GPUS, 0.0, Cause.NETWORK,
        (
            Trace(_RETRIES, _RETRIES),
            Trace(
                "gpu-2:771:902 [6] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_6:1 Got async "
                f"event : port error\n{_RETRIES}", _RETRIES,
            ),
            _ALL_WAIT,
        ),
    ),
    Reason(
        "Host Maintenance", "Unplanned Maintenance", 32, _GPUS, 0.0, Cause.UNKNOWN,
        (_LOST, _LOST_AND_HUNG),
    ),
    _gpu(
        "GPU SRAM Memory", 19,
        Trace(
            cuda("uncorrectable ECC error encountered"), PEER_GONE,
            kernel=(xid(94, "Contained: SM (0x3). RST: No, D-RST: Yes"),),
        ),
        Trace(
            _thrown("uncorrectable ECC error encountered"), PEER_GONE, exit_code=134,
            kernel=(xid(95, "Uncontained: LTC TAG (0x6,0x1). RST: Yes, D-RST: No"),),
        ),
        Trace(
            cuda("uncorrectable ECC error encountered"), PEER_GONE,
            kernel=(xid(140, "Unrecovered ECC error in SRAM"),),
        ),
    ),
    _gpu(
        "GPU System Processor", 17,
        _hangs(119, "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected "
                    "function 76 (GSP_RM_CONTROL) (0x2080a0c2 0x8)."),
        _hangs(120, "GSP task exception: 0xb @ pc:0x17fd2b6, partition:4#0, task:3"),
        Trace(_thrown("unknown error"), PEER_GONE, exit_code=134,
              kernel=(xid(119, "Timeout after 45s of waiting for RPC response from GPU2 GSP!"),)),
    ),
    _host("NIC", 7, Trace(_RETRIES, _RETRIES), _ALL_WAIT),
    Reason("NCCL Watchdog Timeouts", "Unknown", 7, _GPUS, 0.0, Cause.UNKNOWN, (_ALL_WAIT,)),
    # The numbers are wrong, and a check of the program's own finds it.
    _gpu(
        "Silent Data Corruption", 6,
        Trace(raised("FloatingPointError: loss is nan at step 40211"), PEER_GONE),
        Trace(raised("AssertionError: gradient norm is not finite"), PEER_GONE),
    ),
    _gpu(
        "GPU Thermal Interface + Sensor", 6,
        Trace(_thrown("unknown error"), PEER_GONE, exit_code=134, kernel=(_OFF_THE_BUS,)),
        _ALL_WAIT,
    ),
    _host(
        "SSD", 3,
        Trace(raised("OSError: [Errno 5] Input/output error: '/scratch/shard-118.bin'"), PEER_GONE),
        Trace(raised("OSError: [Errno 30] Read-only file system: '/scratch/state'"), PEER_GONE),
        _LOST,
    ),
    _host("Power Supply", 3, _LOST),
    _host("Server Chassis", 2, _LOST, _LOST_AND_HUNG),
    _host(
        "IO Expansion Board", 2,
        Trace(_thrown("unknown error"), PEER_GONE, exit_code=134, kernel=(_OFF_THE_BUS,)), _LOST,
    ),
    Reason(
        "Dependency", "Dependency", 2, _GPUS, 0.0, Cause.SOFTWARE,
        (
            Trace(raised("ImportError: libnccl.so.2: undefined symbol: ncclCommRegister"),
                  PEER_GONE),
        ),
    ),
    _host("CPU", 2, _LOST),
    _host("System Memory", 2, _LOST),
)  # fmt: skip
