"""Random programs that may do anything: each checked in a process of its own, and shrunk to a text when it fails.

``random_programs.py`` keeps sizes apart and indices in range, so that Hypothesis can shrink what it draws. Here
programs are drawn for what that leaves out: results whose sizes the run decides, branches on sizes, negative, clamped
and wrong indices, views of views, equal sizes under different names, products of square matrices, deep nests, special
values and larger arrays. Whatever goes wrong is a finding: a crash, a hang, an internal error, results that differ.

| module | what it has |
|---|---|
| ``drawing.py`` | drawn text as a tree, which can be shrunk; sizes, scopes, and the choice of a rule |
| ``elements.py``, ``arrays.py``, ``control.py``, ``views.py`` | the rules of the grammar |
| ``cases.py`` | a whole program with its arguments and how it is compiled |
| ``agreement.py`` of the tests, ``sensitivity.py`` | when results agree |
| ``checks.py`` | what must hold for a case |
| ``workers.py`` | the processes in which cases are checked |
| ``shrinking.py`` | the smallest case that fails in the same way |
| ``__main__.py`` | ``make fuzz``: cases in the order of their seeds, and a log of them |

Random testing of compilers by whole programs: Csmith (Yang et al., PLDI 2011); reducing by the grammar: C-Reduce
(Regehr et al., PLDI 2012).
"""
