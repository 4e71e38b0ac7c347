"""Caps of the controller on their way to agents: who asks for limits, and what each is told."""
