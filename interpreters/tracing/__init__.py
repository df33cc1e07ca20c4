"""The parts of ``trace``: what is recorded, and what each construct leaves behind, with arrays and without."""
