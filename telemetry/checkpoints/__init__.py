"""Which checkpoints of which job are whole and verified at which site, as keepers tell."""
