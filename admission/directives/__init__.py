"""Directives: what running jobs are to do, with a ledger of what came of it."""
