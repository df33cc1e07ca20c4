"""Derivatives: forward and reverse mode as languages, and the verbs built on them."""

from .jacobians import hessian, jacobian
from .sparse import SparseJacobian, sparse_hessian, sparse_jacobian
from .verbs import grad, hvp, jvp, linearize, value_and_grad, vjp

__all__ = [
    "SparseJacobian",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "sparse_hessian",
    "sparse_jacobian",
    "value_and_grad",
    "vjp",
]
