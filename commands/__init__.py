"""The command line: ``adze COMMAND FILE:PROGRAM ...``, also as ``python -m adze``.

A command is a function from options to a *report* (``report.py``): it computes, and prints nothing. One place
(``main.py``) reads the command line, prints the report as text or as JSON, and turns errors into exit codes. So each
command is a page, and a new one is a row in the table ``COMMANDS`` there::

    adze show kmeans.py:cost                         main.py finds the row of show and reads its options
      programs.py    kmeans.py:cost                  executes the file and finds the program
      arguments.py   n=1000 d=16 x=points.npy        makes values of words
      show.py        show(options)                   gives Report({"text": ...}, [Code(...)])
      report.py                                      prints it, or its data with --json

Exit codes: 0; 1 for an error of the program, or a check that fails; 2 for a command line that cannot be understood.
"""

from __future__ import annotations

from .main import main

__all__ = ["main"]
