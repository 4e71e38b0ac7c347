"""What published failures leave on a node: their counts, and the evidence of each reason.

**The rule, which was written before anything was attributed by it.** A paper names reasons and how
often each came. For each reason stands here what a failure of that kind leaves where Headroom
looks: lines of the kernel's log, output of the command on the node that failed and on its peers,
exit codes, a node that is gone. The texts follow what their makers document and print: NVIDIA's
catalog of Xid errors and its guide to fabric managers (SXid), CUDA's error strings, NCCL's results
and warnings, messages of PyTorch's process group, data loader and launcher, Python's exceptions,
botocore's. Where a reason shows itself in several ways, each is as likely: no paper says how often
which comes. ``expected`` is the cause that Headroom has for what the paper names; where that says
no more than "a node failed" or "a collective timed out", it is ``unknown``: of what, nobody has
published.

Who wrote the texts knew the reader, and nobody has published output beside counts. So agreement
says that evidence of these forms arrives and is attributed as it should be, between nodes and jobs
that fail side by side. It does not say how often real failures leave such evidence.

**Acme**: Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI
2024 (arXiv 2403.07648), Table 3: failures of six months on 4,704 A100, with the median of GPUs and
the share of GPU time of each reason. Its text says that infrastructure is 11 % of failures and over
82 % of GPU time. The table here comes to 10.9 % and 82.1 %, and its shares of GPU time to 100.0 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from admission.core.failures import Cause

__all__ = ["ACME", "Reason", "Trace"]


@dataclass(frozen=True, slots=True)
class Trace:
    """What one failure leaves.

    ``output`` is the end of what the command says on the node that fails, ``peers`` what it says on
    the others. ``kernel`` are lines of the kernel's log there, ``before_s`` before the command
    ends. ``is_lost``: nothing is known of what became of the node's part.
    """

    output: str = ""
    peers: str = ""
    exit_code: int = 1
    kernel: tuple[str, ...] = ()
    before_s: float = 20.0
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """A published reason. ``gpus`` is the median of its jobs; ``gpu_time`` its share, 0 to 1."""

    name: str
    category: str
    count: int
    gpus: int
    gpu_time: float
    expected: Cause
    traces: tuple[Trace, ...]

    def draw(self, random: np.random.Generator) -> Trace:
        return self.traces[int(random.integers(len(self.traces)))]


# --- Output of commands ---------------------------------------------------------------------------


def raised(error: str, *, rank: int = 3, said: str = "") -> str:
    """Return the end of the output of a node on which a rank has raised ``error``, by torchrun."""
    before = f"{said}\n" if said else ""
    prefix = f"[rank{rank}]:"
    lines = "\n".join(f"{prefix} {line}" for line in error.splitlines())
    return (
        "iteration     1240/   50000 | consumed samples:       634880 | lm loss: 2.317421E+00\n"
        f"{before}{prefix} Traceback (most recent call last):\n"
        f'{prefix}   File "/workspace/train.py", line 412, in <module>\n'
        f"{prefix}     main(args)\n"
        f'{prefix}   File "/workspace/train.py", line 388, in main\n'
        f"{prefix}     loss = engine(batch)\n"
        f"{lines}\n" + launcher(1, rank)
    )


def launcher(exit_code: int, rank: int = 3) -> str:
    """Return what torchrun says when a rank has ended with ``exit_code``; below 0: by a signal."""
    signal = f"Signal {-exit_code} received by PID 4140" if exit_code < 0 else "To enable traceback"
    return (
        "E1127 10:02:11.220 4127 torch/distributed/elastic/multiprocessing/api.py:826] failed "
        f"(exitcode: {exit_code}) local_rank: {rank} (pid: 4140) of binary: /opt/conda/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/bin/torchrun", line 33, in <module>\n'
        "    sys.exit(load_entry_point('torch==2.3.0', 'console_scripts', 'torchrun')())\n"
        '  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/run.py", line 879\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        f"[0]:\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : {exit_code} (pid: 4140)\n"
        f"  error_file: <N/A>\n  traceback : {signal}\n"
    )


def cuda(error: str) -> str:
    """Return what a program says to whom CUDA has returned an error."""
    return raised(
        f"RuntimeError: CUDA error: {error}\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the "
        "stacktrace below might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1."
    )


#: What the others say when a peer is gone, or the way to it.
PEER_GONE = raised(
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
    "ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version "
    "2.20.5\nncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.\nLast error:\nNET/IB : Got completion from peer 10.3.0.17<48312> with "
    "status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80:: hca mlx5_3",
    rank=11,
)
WATCHDOG = (
    "[rank11]:[E1127 10:02:09.101 ProcessGroupNCCL.cpp:563] [Rank 11] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=90411, OpType=ALLREDUCE, NumelIn=67108864, "
    "NumelOut=67108864, Timeout(ms)=600000) ran for 600047 milliseconds before timing out.\n"
    "[rank11]:[E1127 10:02:09.502 ProcessGroupNCCL.cpp:1537] [PG 0 Rank 11] Some NCCL operations "
    "have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
    "operations might run on corrupted/incomplete data. To avoid data inconsistency, we are taking "
    "the entire process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG 0 Rank 11] NCCL watchdog thread terminated with exception\n"
) + launcher(-6, 11)
SOCKET = raised(
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
    "ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), "
    "NCCL version 2.20.5\nncclSystemError: System call (e.g. socket, malloc) or external library "
    "call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.3.0.17<44871> "
    "failed : No route to host",
    rank=11,
)


def xid(code: int, said: str) -> str:
    return f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=4140, name=python, {said}"


# --- Acme -----------------------------------------------------------------------------------------

_NVLINK = (
    Trace(
        cuda("uncorrectable NVLink error detected during the execution"), PEER_GONE,
        kernel=(xid(74, "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0)"),),
    ),
    # The link is gone, nobody is told, and the collective hangs until the watchdog's time is up.
    Trace(
        WATCHDOG, WATCHDOG, exit_code=134, before_s=640.0,
        kernel=(xid(74, "NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0)"),),
    ),
    Trace(
        cuda("unspecified launch failure"), PEER_GONE,
        kernel=(
            xid(74, "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0)"),
            xid(45, "Ch 00000008"),
        ),
    ),
    # Seen by the switch, not by the GPU.
    Trace(
        cuda("unspecified launch failure"), PEER_GONE,
        kernel=(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 32 LTSSM Fault Up",
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 32",
        ),
    ),
)  # fmt: skip
_CUDA = (
    Trace(
        cuda("unknown error"), PEER_GONE, kernel=(xid(79, "GPU has fallen off the bus."),),
    ),
    Trace(
        WATCHDOG, WATCHDOG, exit_code=134, before_s=640.0,
        kernel=(xid(119, "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected "
                         "function 76 (GSP_RM_CONTROL) (0x20803032 0x58)."),),
    ),
    # NVIDIA's catalog: most likely the program's, seldom the hardware's.
    Trace(
        cuda("an illegal memory access was encountered"), PEER_GONE,
        kernel=(xid(31, "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 "
                        "faulted @ 0x7f4c_4a000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ"),),
    ),
    Trace(cuda("CUDA-capable device(s) is/are busy or unavailable"), PEER_GONE),
)  # fmt: skip
_NODE = (
    Trace(peers=PEER_GONE, is_lost=True),
    Trace(peers=WATCHDOG, is_lost=True),
)
_ECC = (
    Trace(
        cuda("uncorrectable ECC error encountered"), PEER_GONE,
        kernel=(
            xid(48, "DBE (double bit error) has been detected on GPU4"),
            xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
        ),
    ),
    Trace(
        cuda("uncorrectable ECC error encountered"), PEER_GONE,
        kernel=(xid(94, "Contained: SM (0x1). RST: No, D-RST: No"),),
    ),
    Trace(
        cuda("uncorrectable ECC error encountered"), PEER_GONE,
        kernel=(xid(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),),
    ),
    # The kernel's log was overwritten, or nobody reads it.
    Trace(cuda("uncorrectable ECC error encountered"), PEER_GONE),
)  # fmt: skip
_NETWORK = (
    Trace(PEER_GONE, PEER_GONE),
    Trace(SOCKET, SOCKET),
    Trace(
        "gpu-17:4140:4391 [3] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_3:1 Got async event : "
        f"port error\n{PEER_GONE}", PEER_GONE,
    ),
)  # fmt: skip
_CONNECTION = (
    Trace(raised(
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='tracker.internal', "
        "port=443): Max retries exceeded with url: /api/runs (Caused by NewConnectionError("
        "'<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new "
        "connection: [Errno 111] Connection refused'))"), PEER_GONE),
    Trace(raised("ConnectionResetError: [Errno 104] Connection reset by peer"), PEER_GONE),
    Trace(raised(
        "urllib3.exceptions.MaxRetryError: HTTPConnectionPool(host='models', port=80): Max retries "
        "exceeded with url: /v1 (Caused by NameResolutionError(\"<urllib3.connection."
        "HTTPConnection object at 0x7f>: Failed to resolve 'models' ([Errno -3] Temporary failure "
        "in name resolution)\"))"), PEER_GONE),
    Trace(raised(
        "torch.distributed.DistNetworkError: The client socket has timed out after 600s while "
        "trying to connect to (10.3.0.11, 29500).")),
)  # fmt: skip
_S3 = (
    Trace(raised(
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject "
        "operation (reached max retries: 4): Please reduce your request rate."), PEER_GONE),
    Trace(raised(
        "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "
        '"http://s3.internal/ckpt/iter_0012000/mp_rank_03.pt"'), PEER_GONE),
    Trace(raised(
        "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "
        '"http://s3.internal/data/shard-00411.tar"'), PEER_GONE),
    Trace(raised("OSError: [Errno 5] Input/output error: '/mnt/s3/data/shard-00411.bin'"),
          PEER_GONE),
)  # fmt: skip


def _program(*errors: str) -> tuple[Trace, ...]:
    return tuple(Trace(raised(error), PEER_GONE) for error in errors)


_DATALOADER = _program(
    "RuntimeError: DataLoader worker (pid 33521) is killed by signal: Killed. ",
    "RuntimeError: DataLoader worker (pid 33521) is killed by signal: Bus error. It is possible "
    "that dataloader's workers are out of shared memory. Please try to raise your shared memory "
    "limit.",
)
_MEMORY = _program(
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a "
    "total capacity of 79.15 GiB of which 1.02 GiB is free. Process 4140 has 78.11 GiB memory in "
    "use. Of the allocated memory 74.40 GiB is allocated by PyTorch",
    "RuntimeError: CUDA error: out of memory",
)
_RUNTIME = (
    *_program(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x5120 and 4096x5120)",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two "
        "devices, cuda:3 and cpu!",
    ),
    Trace(cuda("device-side assert triggered"), PEER_GONE),
)
_LOADING = _program(
    "RuntimeError: Error(s) in loading state_dict for InternLM:\n\tsize mismatch for "
    "embed_tokens.weight: copying a param with shape torch.Size([103168, 4096]) from checkpoint",
    "_pickle.UnpicklingError: invalid load key, 'v'.",
    "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
)
_OS = _program(
    "OSError: [Errno 28] No space left on device: '/workspace/out/events.out'",
    "OSError: Can't load tokenizer for 'internlm-7b'. If you were trying to load it from "
    "'https://huggingface.co/models', make sure you don't have a local directory with that name.",
    "OSError: [Errno 39] Directory not empty: 'iter_0012000'",
)
_ARGUMENT = Trace(
    "usage: train.py [-h] [--config CONFIG] [--seed SEED]\n"
    "train.py: error: unrecognized arguments: --zero-stage 1\n" + launcher(2),
    PEER_GONE, exit_code=2,
)  # fmt: skip


def _acme(
    category: str,
) -> Callable[[str, int, int, float, Cause, tuple[Trace, ...]], Reason]:
    def reason(
        name: str, count: int, gpus: int, percent: float, cause: Cause, traces: tuple[Trace, ...]
    ) -> Reason:
        return Reason(name, category, count, gpus, percent / 100.0, cause, traces)

    return reason


_infrastructure, _framework, _script = map(_acme, ("infrastructure", "framework", "script"))
_SOFTWARE = Cause.SOFTWARE
ACME: tuple[Reason, ...] = (
    _infrastructure("NVLink Error", 54, 896, 30.25, Cause.HARDWARE, _NVLINK),
    _infrastructure("CUDA Error", 21, 1024, 15.77, Cause.HARDWARE, _CUDA),
    _infrastructure("Node Failure", 16, 768, 14.30, Cause.UNKNOWN, _NODE),
    _infrastructure("ECC Error", 12, 768, 11.00, Cause.HARDWARE, _ECC),
    _infrastructure("Network Error", 12, 768, 4.53, Cause.NETWORK, _NETWORK),
    _infrastructure("Connection Error", 147, 1, 3.44, Cause.NETWORK, _CONNECTION),
    _infrastructure("S3 Storage Error", 10, 256, 2.12, Cause.NETWORK, _S3),
    _infrastructure(
        "NCCL Timeout Error", 6, 512, 0.50, Cause.UNKNOWN,
        (Trace(WATCHDOG, WATCHDOG, exit_code=134),),
    ),
    _infrastructure(
        "NCCL Remote Error", 3, 1024, 0.15, Cause.NETWORK, (Trace(PEER_GONE, PEER_GONE),)
    ),
    _framework("Dataloader Killed", 6, 508, 4.38, _SOFTWARE, _DATALOADER),
    _framework("Attribute Error", 67, 8, 3.90, _SOFTWARE,
               _program("AttributeError: 'NoneType' object has no attribute 'shape'")),
    _framework("Out of Memory Error", 14, 640, 3.28, _SOFTWARE, _MEMORY),
    _framework("Runtime Error", 65, 352, 1.72, _SOFTWARE, _RUNTIME),
    _framework("Assertion Error", 105, 256, 1.24, _SOFTWARE,
               _program("AssertionError: tensor parallel size must divide attention heads")),
    _framework("Value Error", 33, 256, 0.16, _SOFTWARE,
               _program("ValueError: too many values to unpack (expected 2)")),
    _framework("Zero Division Error", 5, 256, 0.03, _SOFTWARE,
               _program("ZeroDivisionError: integer division or modulo by zero")),
    _framework("Model Loading Error", 104, 8, 0.00, _SOFTWARE, _LOADING),
    _framework("Dataset Loading Error", 5, 1, 0.00, _SOFTWARE,
               _program("datasets.exceptions.DatasetGenerationError: An error occurred while "
                        "generating the dataset")),
    _script("File Not Found Error", 568, 1, 2.83, _SOFTWARE,
            _program("FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'")),
    _script("OS Error", 266, 1, 0.28, _SOFTWARE, _OS),
    _script("Type Error", 620, 4, 0.06, _SOFTWARE,
            _program("TypeError: forward() got an unexpected keyword argument 'mask'")),
    _script("Name Error", 18, 24, 0.02, _SOFTWARE,
            _program("NameError: name 'tokeniser' is not defined. Did you mean: 'tokenizer'?")),
    _script("Permission Error", 7, 512, 0.01, _SOFTWARE,
            _program("PermissionError: [Errno 13] Permission denied: '/data/ckpt'")),
    _script("Import Error", 111, 8, 0.01, _SOFTWARE,
            _program("ModuleNotFoundError: No module named 'flash_attn'",
                     "ImportError: libcudart.so.11.0: cannot open shared object file: No such "
                     "file or directory")),
    _script("Key Error", 260, 1, 0.01, _SOFTWARE, _program("KeyError: 'input_ids'")),
    _script("Syntax Error", 10, 384, 0.00, _SOFTWARE, (
        Trace('  File "/workspace/train.py", line 12\n    def main(:\n             ^\n'
              "SyntaxError: invalid syntax\n" + launcher(1), PEER_GONE),)),
    _script("Argument Error", 3, 512, 0.00, _SOFTWARE, (_ARGUMENT,)),
    _script("Called Process Error", 4, 256, 0.00, _SOFTWARE,
            _program("subprocess.CalledProcessError: Command '['make', '-C', 'csrc']' returned "
                     "non-zero exit status 2.")),
    _script("Index Error", 23, 1, 0.00, _SOFTWARE, _program("IndexError: list index out of range")),
)  # fmt: skip
