"""Interpretations of programs: evaluation, printing, checking and simplification."""
