"""Passes from loops to loops, which have their roles: threads, lanes, jams."""
