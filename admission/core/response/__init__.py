"""Responses of running jobs when power or heat runs short or their site fails."""
