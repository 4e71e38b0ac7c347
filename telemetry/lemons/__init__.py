"""Lemons: GPUs that give less clock, or get hotter, than their peers under the same load.

``rules`` has the numbers, ``find`` and ``evidence`` the pure core, ``watch`` the shell. A lemon in
``physics.reliability`` is another thing: a node that fails more often than the rest.
"""
