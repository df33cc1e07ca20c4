"""From a term to machine code: schedule, nests, loop IR, memory, and one folder a target."""
