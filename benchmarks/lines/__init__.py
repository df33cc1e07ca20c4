"""The lines of the benchmark: each module has a program's contenders and sizes, as ``LINES``."""
