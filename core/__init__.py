"""The language: types, terms, environments, the tagless class, primitives and combinators."""
