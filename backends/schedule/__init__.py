"""What makes programs fast: passes over terms, then over nests, then over loops (``pipeline.py`` has their order)."""
