"""The controller of running load: power caps that hold every budget, and give back what is free."""
