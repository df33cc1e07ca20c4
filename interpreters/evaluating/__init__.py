"""The parts of evaluate: batches of iterations, reductions and writes, functions as values."""
