"""From a program to machine code: schedule, loop IR, memory and code generators."""
