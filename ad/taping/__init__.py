"""The parts of the reverse pass over a trace: who counts, local rules, folds, sparse cotangents."""
