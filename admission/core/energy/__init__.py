"""Where the energy of a fleet went over a span: whole millijoules, which add up to the meter."""
