"""Headroom, rules, restrictions, incidents and playbooks."""
