"""What the end of a command's output says of how it ended, and what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.failures import Kind
from admission.core.said import Output, said_of

PEER_GONE = (
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote "
    "process exited or there was a network error\n"
    "[rank1]: ncclRemoteError: A call failed possibly due to a network error\n"
)
WATCHDOG = (
    "[rank2]:[E ProcessGroupNCCL.cpp:563] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600047 milliseconds before timing out.\n"
)
ENDED = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "train.py FAILED\n  exitcode  : 1 (pid: 41)\n"
)


def kind_of(*texts: str) -> Kind | None:
    said = said_of(Output(f"n{place}", text) for place, text in enumerate(texts))
    return None if said is None else said.kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Kind.TOLD_MEMORY),
        ("RuntimeError: cuda runtime error (214) : uncorrectable ECC error encountered",
         Kind.TOLD_MEMORY),
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
         Kind.TOLD_NVLINK),
        ("RuntimeError: No CUDA GPUs, the GPU is lost", Kind.TOLD_GPU),
        ("RuntimeError: CUDA error: unknown error", Kind.UNCLEAR),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", Kind.EXCEPTION),
        ("OSError: [Errno 5] Input/output error: '/data/shard'", Kind.STORAGE),
        ("botocore.exceptions.ClientError: An error occurred (SlowDown)", Kind.STORAGE),
        ("OSError: [Errno 28] No space left on device", Kind.EXCEPTION),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", Kind.CONNECTION),
        ("OSError: [Errno 113] No route to host", Kind.CONNECTION),
        ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
         "the C10d store has failed.", Kind.BROKEN),
        ("KeyError: 'input_ids'", Kind.EXCEPTION),
        ("KeyboardInterrupt", Kind.EXCEPTION),
        (WATCHDOG, Kind.HUNG),
        (PEER_GONE, Kind.BROKEN),
        # Words within a line of a log are no exception, and a launcher says only that one ended.
        ("step 12: caught ValueError: retrying", None),
        (ENDED, None),
        ("", None),
    ],
)  # fmt: skip
def test_the_words_of_python_cuda_and_nccl_say_what_it_was(text: str, kind: Kind | None) -> None:
    assert kind_of(text) is kind
    assert kind_of(f"step 11\nTraceback (most recent call last):\n{text}\n{ENDED}") is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("uncorrectable ECC error encountered", Kind.TOLD_MEMORY),
        ("device-side assert triggered", Kind.EXCEPTION),
    ],
)
@pytest.mark.parametrize(
    "thrown",
    ["  what():  CUDA error: {}",
     "[Rank 1] NCCL watchdog thread terminated with exception: CUDA error: {}"],
)  # fmt: skip
def test_an_error_that_only_a_thread_of_the_program_saw_counts_before_its_collective(
    thrown: str, error: str, kind: Kind
) -> None:
    assert kind_of(f"{WATCHDOG}{thrown.format(error)}\nframe #0: c10::Error") is kind


def test_the_rank_that_says_something_of_itself_counts_before_those_that_waited_for_it() -> None:
    said = said_of([
        Output("n0", PEER_GONE), Output("n1", WATCHDOG), Output("n2", "KeyError: 'x'"),
    ])  # fmt: skip
    assert said is not None
    assert (said.kind, said.node, said.text) == (Kind.EXCEPTION, "n2", "KeyError")


def test_ranks_of_one_node_are_read_apart() -> None:
    both = (
        "[rank0]: ValueError: bad\n"
        "[rank1]: During handling of the above exception, another exception occurred:\n"
        "[rank1]: OSError: [Errno 116] Stale file handle\n"
    )
    assert kind_of(both) is Kind.STORAGE


def test_of_exceptions_that_follow_from_each_other_what_was_outside_of_the_program_counts() -> None:
    text = (
        "ConnectionRefusedError: [Errno 111] Connection refused\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "RuntimeError: could not save\n"
    )
    assert kind_of(text) is Kind.CONNECTION
    assert kind_of("ConnectionError: refused\ntrying again\nRuntimeError: bad") is Kind.EXCEPTION


def test_where_nobody_says_anything_of_itself_the_first_to_end_ended_by_itself() -> None:
    said = said_of([Output("n3", "step 11"), Output("n1", PEER_GONE), Output("n2", WATCHDOG)])
    assert said is not None
    assert (said.kind, said.node) == (Kind.EXIT, "n3")
    assert kind_of(PEER_GONE, "step 11") is Kind.BROKEN


def test_a_node_of_which_nothing_is_known_counts_before_what_its_peers_say() -> None:
    said = said_of([Output("n1", PEER_GONE), Output("n2", "", is_lost=True)])
    assert said is not None
    assert (said.kind, said.node) == (Kind.NODE_LOST, "n2")


def test_how_long_a_collective_stood_still_is_told() -> None:
    said = said_of([Output("n1", WATCHDOG)])
    assert said is not None
    assert said.before_s == pytest.approx(600.047)


def test_nothing_of_a_message_is_kept() -> None:
    said = said_of([Output("n1", "mine.SecretError: the key is hunter2")])
    assert said is not None
    assert (said.text, said.kind) == ("SecretError", Kind.EXCEPTION)


_lines = st.sampled_from(
    [
        *PEER_GONE.splitlines(),
        WATCHDOG,
        ENDED,
        "KeyError: 1",
        "step",
        "what():",
        "During handling of the above exception",
        "[rank1]: OSError: [Errno 5]",
    ]
)
_texts = st.one_of(st.text(max_size=200), st.lists(_lines, max_size=9).map("\n".join))


@given(st.lists(st.builds(Output, st.sampled_from(["n1", "n2", "n3"]), _texts, st.booleans())))
def test_whatever_is_printed_one_of_those_that_printed_is_named_or_none(
    outputs: list[Output],
) -> None:
    said = said_of(outputs)
    assert said is None or said.node in {each.node for each in outputs}
    assert said is None or len(said.text) <= 60
