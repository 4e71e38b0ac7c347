"""The elevation of a rack: nodes at their units, GPUs as colored cells, each a link."""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from dashboard import scale
from dashboard.racks import GpuCell, NodeLine, RackNow

_WIDTH = 400
_U = 12
_LEFT = 26
_RIGHT = _WIDTH - 6
_PAD = 6
#: A node that is lower than this has its name beside its GPUs, not above them, px.
_LOW = 40
_NAME_CHARS = 30
_LOW_NAME_CHARS = 16
#: GPUs side by side; more go on in a further line.
_PER_LINE = 8


def elevation(rack: RackNow) -> SafeString:
    """Return an SVG. Unit 1 is at the bottom; nodes without a place are below the frame."""
    placed = [node for node in rack.nodes if _fits(node, rack.height_u)]
    loose = [node for node in rack.nodes if not _fits(node, rack.height_u)]
    frame_h = rack.height_u * _U
    parts = [
        f'<rect class="rack-frame" x="{_LEFT}" y="{_PAD}" width="{_RIGHT - _LEFT}"'
        f' height="{frame_h}"/>',
        *_unit_marks(rack.height_u),
    ]
    for node in placed:
        top = _PAD + (rack.height_u - (node.position_u + node.height_u - 1)) * _U
        parts.append(_node(node, top, node.height_u * _U))
    bottom = _PAD + frame_h + _PAD
    for node in loose:
        parts.append(_node(node, bottom, max(3, node.height_u) * _U))
        bottom += max(3, node.height_u) * _U + 2
    return format_html(
        '<svg class="elevation" viewBox="0 0 {} {}" role="group"'
        ' aria-label="Elevation of rack {}: {} nodes from bottom to top">{}</svg>',
        _WIDTH,
        bottom + (_PAD if loose else 0),
        rack.name,
        len(rack.nodes),
        mark_safe("".join(parts)),  # noqa: S308 - every name in it is escaped
    )


def _fits(node: NodeLine, height_u: int) -> bool:
    return node.position_u >= 1 and node.position_u + node.height_u - 1 <= height_u


def _unit_marks(height_u: int) -> list[str]:
    marks = []
    for unit in range(1, height_u + 1):
        if unit != 1 and unit % 5:
            continue
        y = _PAD + (height_u - unit + 1) * _U
        marks.append(f'<text class="u-mark" x="{_LEFT - 4}" y="{y - 3}">{unit}</text>')
        marks.append(f'<path class="u-line" d="M{_LEFT} {y}H{_RIGHT}"/>')
    return marks


def _node(node: NodeLine, top: int, height: int) -> str:
    low = height < _LOW
    name = conditional_escape(_clipped(node.name, _LOW_NAME_CHARS if low else _NAME_CHARS))
    figures = " · ".join(part for part in (f"{node.load_w / 1000:.1f} kW", node.state) if part)
    label = conditional_escape(f"node {node.name}: {figures}")
    left, width = _LEFT + 3, _RIGHT - _LEFT - 6
    baseline = top + (height / 2 + 4 if low else 15)
    value = (
        ""
        if low
        else f'<text class="node-value" x="{left + width - 6}" y="{baseline}">'
        f"{conditional_escape(figures)}</text>"
    )
    head = (
        f'<a id="node-{node.id}" href="{reverse("node", args=[node.id])}" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect class="node-box" x="{left}" y="{top + 1}" width="{width}" height="{height - 2}"'
        f' rx="3"/><text class="node-name" x="{left + 6}" y="{baseline}">{name}</text>{value}</a>'
    )
    return head + "".join(_gpus(node.gpus, node.name, top, height, low))


def _gpus(gpus: list[GpuCell], node: str, top: int, height: int, low: bool) -> list[str]:
    if not gpus:
        return []
    area_x = _LEFT + (130 if low else 9)
    area_y, area_h = (top + 4, height - 8) if low else (top + 22, height - 28)
    area_w = _RIGHT - 9 - area_x
    per_line = min(len(gpus), _PER_LINE if not low else 16)
    lines = -(-len(gpus) // per_line)
    width, cell_h = area_w / per_line, area_h / lines
    boxes = []
    for place, gpu in enumerate(gpus):
        line, column = divmod(place, per_line)
        boxes.append(
            _gpu(gpu, node, area_x + column * width, area_y + line * cell_h, width - 3, cell_h - 2)
        )
    return boxes


def _gpu(gpu: GpuCell, node: str, x: float, y: float, width: float, height: float) -> str:
    label = conditional_escape(f"GPU {gpu.index} of {node}: {gpu.words}")
    figure = (
        f'<text class="gpu-value" x="{x + width / 2:.1f}" y="{y + height / 2 + 3.5:.1f}">'
        f"{conditional_escape(gpu.figure)}</text>"
        if width >= 22 and height >= 12
        else ""
    )
    css = scale.css(gpu.level)
    return (
        f'<a id="gpu-{gpu.id}" class="{css}" href="{reverse("gpu", args=[gpu.id])}"'
        f' aria-label="{label}"><title>{label}</title>'
        f'<rect class="gpu-box {css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{max(height, 1):.1f}" rx="2"/>{figure}</a>'
    )


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
