"""The parts of the interpretation that propagates dependence sets."""
