"""The parts of simplify: what is needed, local rules, accumulators that become reductions."""
