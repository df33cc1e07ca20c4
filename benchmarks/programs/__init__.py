"""The programs of the field's benchmark suites, each as a user of Adze would write it.

One module a program: ``kmeans``, ``ba`` (bundle adjustment), ``ht`` (hand tracking), ``lstm``, ``lse``, ``llsq``,
``ode``, ``det``, ``particle``, ``saddle`` and ``hello``. (The suites' mixture model is ``examples/gmm.py``; ``gmm`` has
its inputs and answers.) The formulas, inputs and reference results are those of GradBench and ADBench
(tests/data/README.md). Each module has

* the program and its derivative, under their own names;
* ``FUNCTIONS``, the same by the names that the suite has for them;
* ``arguments(given)``, the arguments of both from the input of a case as the suite writes it;
* ``answer(function, result)``, the result of one of the functions as the suite writes it.

``cases.py`` reads the cases of tests/data. ``variants.py`` has small programs of more kinds, and ``rewriting.py`` makes
other spellings of these, to see that they are the same nests (tests/laws/test_spellings.py).
"""
