"""Forecasts of load held against "as now" on published series of power, and on published traces."""
