"""Interop: Adze programs as functions of other array libraries, with the derivatives of both.

A library that differentiates asks for more than numbers. It is given a program together with its cotangents, tangents
and batches, each of which is an Adze program again.
"""

from __future__ import annotations

from .jax import JaxFunction, jax
from .torch import TensorFunction, torch

__all__ = ["JaxFunction", "TensorFunction", "jax", "torch"]
