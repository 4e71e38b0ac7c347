"""The bars: how far the twin may be off before decisions that rest on it go wrong.

They were written down before the run that they judge, and none is the twin's own error. What they
are taken from:

- A policy is judged by its work, to 2 % of that of a plain queue. What a fleet can run under a
  budget is off by as much as its mean power is: **a fleet's mean power may be off by 2 %**.
- A job is reserved for at what it was measured to draw, and 10 % on top. Half of that is for what
  changes from run to run: **a node of one kind of job may be off by 5 %**, in its mean and in its
  upper quantiles.
- The controller leaves room for what a gang may add within a round. Room that is wrong by 2 % of a
  load breaks its budget or wastes as much: **changes of a load may be off by 2 % of the load**.
- Four nodes share a rack. If their levels vary by d W more or less than the twin's, the 99 %
  quantile of four is off by 2.33 · d · √4, which may be 2 % of the 26 kW of four nodes: **the
  variety of nodes may be off by 110 W**.
- Agreements on slowdown begin at 5 %, and work is compared to 2 %: **speed may be off by 2
  points**.
- A GPU that is throttled for heat is let go 3 °C below: **temperatures may be off by 3 °C**.
- A budget of a site holds fabric and cooling, too. They are estimates: **10 % of their power**. No
  data set tells them apart from the rest, so nothing is held to that yet.
"""

from __future__ import annotations

FLEET_POWER = 2.0
NODE_POWER = 5.0
CHANGE = 2.0
VARIETY_W = 110.0
SPEED = 2.0
TEMPERATURE_C = 3.0
