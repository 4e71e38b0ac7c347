"""Versioned documents: rules, playbooks, classes, service levels, admission policies."""
