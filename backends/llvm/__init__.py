"""LLVM code generation and the just-in-time run time."""
