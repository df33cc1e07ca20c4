"""Derivatives: forward and reverse mode as languages, and the verbs built on them."""

from .jacobians import hessian, jacobian
from .verbs import grad, hvp, jvp, value_and_grad, vjp

__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]
