"""Executors: those who start, signal and watch what runs."""
