"""The cycle of admission: read queue and fleet, decide, write down, dispatch, publish."""
