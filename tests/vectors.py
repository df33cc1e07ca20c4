"""The vectors of this machine: some tests look at choices that short ones do not offer."""

from adze.backends.llvm.host import host

WIDE = host().target.register_bytes >= 64
