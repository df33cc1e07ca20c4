"""Programs over arrays that are too large for one call, or one machine: they are cut along a size, into chunks.

    over="n":  mean = sum(x) / f64(n)         stage 1, of each chunk: sum(x); two of them are added
               sum((x - mean) ** 2) / f64(n)  here: sum / f64(n); stage 2, of each chunk: sum((x - mean) ** 2)

The term says what may be cut. A loop over ``n`` that reads arrays over ``n`` at its own index runs on a chunk of them;
what it reduces is *combined*, in a tree whose shape the number of chunks determines; all else is computed *here*, by
whoever makes the call, and sequential loops around stages are run here, too.

===================  ================================================================================================
``cutting.py``       which operations of a term go over the size, and what cannot be cut
``fission.py``       loops that hold such a reduction beside other work become two
``distribution.py``  what sequential loops do on chunks gets loops of its own
``parts.py``         programs that travel: a term, compiled where it is run
``language.py``      what a term means on a chunk: indices are local, numbers are global
``nodes.py``         the operations of a block with what they need, and when they can be had
``planning.py``      from a term to nodes, and what cannot be cut
``steps.py``         from nodes to a plan: stages, what is done between them, loops around them
``plan.py``          the plan, which runs on an engine, and prints itself
``call.py``          one call: its sizes, chunks and sources, and what is done for a run of chunks
``trees.py``         the tree in which the parts of chunks are combined
``sources.py``       where chunks come from: arrays, files, Dask's arrays
``files.py``          ranges of files, through the system's cache or past it
``local.py``         the engine of one machine: chunks one after the other, the next is read meanwhile
``lazy.py``          results that are as long as the size: arrays of Dask's, computed on demand
``cluster.py``       the engine of Dask's workers
``workers.py``       what travels to them: once a process, or once a call
``version.py``       one program over one size: what a call does
``chunked.py``       what users have of it
===================  ================================================================================================

(Chunks with a tree of combinations are Dask's own way, and that of algebraic reductions: Gray et al., Data cube, 1997.)
"""
