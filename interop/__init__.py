"""Interop: Adze programs as functions of other array libraries, and the other way, with the derivatives of both.

A library that differentiates asks for more than numbers. It is given a program together with its cotangents, tangents
and batches, each of which is an Adze program again.
"""

from __future__ import annotations

from .jax import JaxFunction, jax
from .outside import from_jax, from_torch
from .scipy import linear_operator
from .torch import TensorFunction, torch

__all__ = ["JaxFunction", "TensorFunction", "from_jax", "from_torch", "jax", "linear_operator", "torch"]
