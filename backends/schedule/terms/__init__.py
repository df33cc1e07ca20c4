"""Passes from terms to terms: what is stored and what is computed again, and in which order sums are made."""
