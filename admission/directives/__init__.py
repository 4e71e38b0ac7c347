"""Directives to running jobs, with a ledger of their effects."""
