"""Interpretations of programs: evaluation, printing, checking and simplification."""

from sys import modules

from .cost import costs
from .trace import inputs

# Traces and costs were in other folders when some pickles of them were made.
modules |= {f"{__name__}.tracing.inputs": inputs, f"{__name__}.costing.costs": costs}
