"""The decisions of admission: pure functions of a snapshot and a clock. No Django, no I/O."""
