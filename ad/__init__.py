"""Derivatives: forward and reverse mode as languages, and the verbs built on them."""

from .verbs import grad, jvp, value_and_grad, vjp

__all__ = ["grad", "jvp", "value_and_grad", "vjp"]
