"""What is read of Slurm's tools beside JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.slurm.commands import Pinned, Slurm

#: As squeue writes columns: padded to their widths, and cut there.
_TOOL = """#!/bin/sh
columns='%-64s%-64s%-12s%-11.11s%-700s\\n'
printf "$columns" 7 7 0 'n[1-3]' '[headroom lease a-7/job/1 0] admitted on n1,n2,n3'
printf "$columns" 9_2 12 1 'n1,n22,n333,n4444' '"[headroom hold] größer als"'
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    tool = tmp_path / "squeue"
    tool.write_text(_TOOL)
    tool.chmod(0o755)
    return Slurm(env={"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_where_jobs_are_to_run_is_read_by_the_width_of_columns(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", slurm.env["PATH"])
    found = slurm.pinned(["7", "9_2"], 10)
    assert found["7"] == Pinned(
        "7", 0, "n[1-3]", "[headroom lease a-7/job/1 0] admitted on n1,n2,n3"
    )
    assert found["9_2"] == Pinned("12", 1, "n1,n22,n333", '"[headroom hold] größer als"')


def test_of_jobs_that_slurm_does_not_know_nothing_is_read(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", slurm.env["PATH"])
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert slurm.pinned(["7"], 10) == {}
