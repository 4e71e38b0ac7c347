"""NVIDIA GPUs through NVML (the ``pynvml`` module): their readings, and the limits set on them."""

from headroom.agent.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
