"""Drawings: a graph in frames, its source for Graphviz, and its picture without Graphviz.

``picture.py`` is the graph. ``layout.py`` gives everything in it a place, ``svg.py`` writes what has one.
"""
