"""URLs of the pages, and of the data that keeps them live."""

from django.urls import path

from dashboard.views import agents, fleet, gpu, lemons, node, rack, search, throttle

urlpatterns = [
    path("", fleet.page, name="fleet"),
    path("racks/<int:rack_id>/", rack.page, name="rack"),
    path("nodes/<int:node_id>/", node.page, name="node"),
    path("gpus/<int:gpu_id>/", gpu.page, name="gpu"),
    path("throttle/", throttle.page, name="throttle-events"),
    path("lemons/", lemons.page, name="lemons"),
    path("agents/", agents.page, name="agents"),
    path("agents/<int:agent_id>/rotate/", agents.rotate, name="rotate-agent"),
    path("agents/<int:agent_id>/revoke/", agents.revoke, name="revoke-agent"),
    path("search", search.page, name="search"),
    # What pages poll: small, cached per version of the live frame, 204 or 304 when nothing changed.
    path("live/pulse", fleet.pulse, name="live-pulse"),
    path("live/fleet", fleet.heatmap, name="live-fleet"),
    path("live/fleet/panel", fleet.panel, name="live-fleet-panel"),
    path("live/racks/<int:rack_id>", rack.panel, name="live-rack"),
    path("live/nodes/<int:node_id>", node.panel, name="live-node"),
    path("live/nodes/<int:node_id>/range", node.table, name="live-node-range"),
    path("live/nodes/<int:node_id>/events", node.events, name="live-node-events"),
    path("live/gpus/<int:gpu_id>", gpu.panel, name="live-gpu"),
    path("live/gpus/<int:gpu_id>/range", gpu.table, name="live-gpu-range"),
    path("live/gpus/<int:gpu_id>/events", gpu.events, name="live-gpu-events"),
    path("live/throttle", throttle.panel, name="live-throttle-events"),
    path("live/lemons", lemons.panel, name="live-lemons"),
    path("live/agents", agents.panel, name="live-agents"),
]
