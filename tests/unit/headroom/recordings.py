"""Small recordings, in memory and in the files' own form."""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Sequence
from pathlib import Path

from headroom.replay.recording import Hardware, JobPoint, Recording

#: Run r2 first in the file but later in time; nodes one after the other; a gap; two faults.
TRAINING = """run_id,meter,node,t_ms,power_w
r2,ac,node_2,2000000,5
r2,ac,node_2,2001000,6
r1,ac,node_2,1000000,100
r1,ac,node_2,1002000,-1
r1,ac,node_10,1000500,1000
r1,ac,node_10,1002500,0
r1,ac,node_10,1030500,2000
r1,dc,node_2,1000000,90
"""

EVENTS = "nodes,bench,run_id,t_ms,event_type,key,value,metadata\n" + "".join(
    f"64,gpt3,{event}\n"
    for event in (
        'r1,900000,POINT_IN_TIME,tracked_stats,"{""throughput"": 1.0}","{""step"": 1}"',
        "r1,1000000,POINT_IN_TIME,global_batch_size,2048,",
        'r1,1002000,POINT_IN_TIME,eval_accuracy,2.75,"{""epoch_num"": 8388608}"',
        'r1,1001000,POINT_IN_TIME,tracked_stats,"{""train_step_timing in s"": 10.5}",'
        '"{""step"": 4194304}"',
        'r1,1002500,POINT_IN_TIME,tracked_stats,"{""validation_step_timing in s"": 4.5}",'
        '"{""step"": 5}"',
        'r1,1003000,POINT_IN_TIME,tracked_stats,"{""throughput"": 190.5}","{""step"": 7}"',
        'r2,1003000,POINT_IN_TIME,tracked_stats,"{""throughput"": 99}","{""step"": 7}"',
    )
)

WALL = """model,scenario,phase,t_iso,power_w,volts_v
a,Offline,run_1,2024-07-14T00:00:00.000,4000,239
a,Offline,run_1,2024-07-14T00:00:01.000,4001,239
b,Server,run_1,2024-07-12T00:00:00.000,3000,239
b,Server,run_1,2024-07-12T00:00:20.000,-2,
"""


HARDWARE = Hardware(
    gpu_model="G1",
    gpu_rated_w=700,
    gpu_idle_w=70,
    gpu_mem_bytes=1,
    host_model="H1",
    host_rated_w=1900,
    host_idle_w=900,
    gpus_per_node=8,
    nodes_per_rack=8,
    node_budget_w=7750,
    cooling_kind="immersion",
    supply_c=35,
)


def write(file: Path, text: str) -> Path:
    """Write ``text``, packed where the name says so, and return the file."""
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


def write_training(folder: Path) -> None:
    """Make ``folder`` a training recording with its events."""
    write(folder / "power_64node_gpt3.csv.gz", TRAINING)
    write(folder / "training_events.csv.gz", EVENTS)
    write(folder / "recording.yaml", "machine: h100-immersed\n")


def make_recording(
    readings: Sequence[tuple[float, int, float]], points: Sequence[JobPoint] = ()
) -> Recording:
    """A recording of (time, node, watts)."""
    nodes = max(node for _, node, _ in readings) + 1
    return Recording(
        title="made",
        hardware=HARDWARE,
        nodes=tuple(f"node_{i}" for i in range(nodes)),
        runs=("r1",),
        t_s=array("d", [t for t, _, _ in readings]),
        node=array("H", [node for _, node, _ in readings]),
        run=array("H", [0 for _ in readings]),
        power_w=array("d", [watts for _, _, watts in readings]),
        job="job-r1" if points else "",
        job_points=tuple(points),
    )
