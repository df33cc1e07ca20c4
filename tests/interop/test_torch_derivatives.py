"""Derivatives and batches of programs as functions of tensors, against those of PyTorch's own formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from other_libraries import pytorch
from tensor_programs import BY_NAME, FORMULAS, Formula, layer, mixed, numbers, positive, same, scalars

import adze as az

torch = pytorch()
func = torch.func
forward_ad = torch.autograd.forward_ad

pytestmark = pytest.mark.unguarded

SIZED = [formula for formula in FORMULAS if formula.program is not positive]
each_sized = pytest.mark.parametrize("formula", SIZED, ids=lambda formula: formula.name)


@pytest.mark.rest
@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_gradcheck(formula: Formula) -> None:
    """Both modes; cotangents in batches where PyTorch can: not for results whose size the run decides."""
    run, batches = formula.fixed(az.torch(formula.program)), formula.program is not positive
    assert torch.autograd.gradcheck(
        run,
        formula.moving(True),
        check_forward_ad=True,
        check_batched_grad=batches,
        check_batched_forward_grad=batches,
    )


@pytest.mark.rest
@pytest.mark.parametrize("name", ["scalars", "mixed", "recurrence", "picked", "positive"])
def test_gradgradcheck(name: str) -> None:
    formula = BY_NAME[name]
    run = formula.fixed(az.torch(formula.program))
    assert torch.autograd.gradgradcheck(run, formula.moving(True), check_fwd_over_rev=True, fast_mode=True)


TRANSFORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad": lambda f: func.grad(lambda *x: sum([torch.sum(torch.cos(y)) for y in f(*x)])),
    "jacrev": func.jacrev,
    "jacfwd": func.jacfwd,
    "hessian": func.hessian,
    "jvp": lambda f: lambda *x: func.jvp(f, x, tuple([torch.cos(part) for part in x])),
    "vjp": lambda f: lambda *x: func.vjp(f, *x)[1](tuple([torch.sin(y) for y in f(*x)])),
    "vmap": lambda f: lambda *x: torch.vmap(f)(*[torch.stack([part, 2 * part]) for part in x]),
    "vmap of one": lambda f: lambda *x: torch.vmap(f, (0, *[None] * (len(x) - 1)))(torch.stack([x[0], -x[0]]), *x[1:]),
    "vmap along the last axis": lambda f: (
        lambda *x: torch.vmap(f, -1, -1)(*[torch.stack([part, 2 * part], -1) for part in x])
    ),
}
NESTED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(f)),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(f)),
    "vmap of vmap of jacrev": lambda f: (
        lambda *x: torch.vmap(torch.vmap(func.jacrev(f)))(*[torch.stack([part, 2 * part])[None] for part in x])
    ),
}


@pytest.mark.rest
@pytest.mark.parametrize("transform", TRANSFORMS)
@each_sized
def test_transforms(formula: Formula, transform: str) -> None:
    transformed = TRANSFORMS[transform]
    found = transformed(formula.fixed(az.torch(formula.program)))(*formula.moving())
    same(found, transformed(formula.fixed(formula.meaning))(*formula.moving()))


@pytest.mark.parametrize("transform", NESTED)
@pytest.mark.parametrize("name", ["mixed", "recurrence"])
def test_transforms_of_transforms(name: str, transform: str) -> None:
    formula, transformed = BY_NAME[name], NESTED[transform]
    found = transformed(formula.fixed(az.torch(formula.program)))(*formula.moving())
    same(found, transformed(formula.fixed(formula.meaning))(*formula.moving()))


def test_dual_numbers() -> None:
    x, y, tangent = numbers(), numbers(seed=1), numbers(seed=2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found = forward_ad.unpack_dual(az.torch(scalars)(dual, y))
        expected = forward_ad.unpack_dual(torch.sin(dual) * y**3)
    same(tuple(found), tuple(expected))


def test_verbs_of_programs() -> None:
    x, y = numbers().requires_grad_(), numbers(seed=1)
    found = az.torch(az.grad(scalars))(x, y)
    same(found, torch.cos(x) * y**3)
    same(torch.autograd.grad(found, x), (-torch.sin(x) * y**3,))
    same(az.torch(az.vmap(scalars, (0, None)))(numbers(3), y), torch.sin(numbers(3)) * y**3)


def test_only_what_needs_a_gradient_has_one() -> None:
    w, b, x = BY_NAME["layer"].arguments()
    f = az.torch(layer)
    assert not f(w, b, x).requires_grad
    w.requires_grad_()
    assert f(w, b, x).requires_grad
    with torch.no_grad():
        assert not f(w, b, x).requires_grad
    with torch.inference_mode():
        assert f(w, b, x).is_inference()
    f(w, b, x).sum().backward()
    assert b.grad is None and x.grad is None
    same(w.grad, torch.autograd.grad(torch.tanh(x @ w.T + b).sum(), w)[0])


def test_integers_have_no_gradient() -> None:
    """Results that are integers do not require one, and nothing comes back through them."""
    x = torch.tensor([1.5, -2.5], dtype=torch.float64, requires_grad=True)
    chosen = torch.tensor([True, False])
    found = az.torch(mixed)(x, 2, chosen)
    assert found["found"].requires_grad and not any(part.requires_grad for part in found["sums"][1:])

    @az.program
    def rounded(x: az.Array[az.f64, "n"], k: az.i64):
        return az.sum(x * az.floor(x)) * k, az.floor(x)

    value, floor = az.torch(rounded)(x, torch.tensor(3))
    same(torch.autograd.grad(value, x, retain_graph=True), (3 * torch.floor(x),))
    same(torch.autograd.grad(floor.sum(), x), (torch.zeros(2, dtype=torch.float64),))


def test_unused_results_and_graphs_that_are_kept() -> None:
    x = numbers(3).requires_grad_()
    value = az.torch(lambda x: (az.sum(x**2), az.exp(x)))(x)[0]
    same(torch.autograd.grad(value, x, retain_graph=True), (2 * x,))
    same(torch.autograd.grad(value, x), (2 * x,))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(value, x)


def test_what_was_saved_must_not_be_overwritten() -> None:
    x = numbers(3).requires_grad_()
    y = x * 1
    value = az.torch(lambda y: az.sum(y**2))(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_checkpointed() -> None:
    x = numbers(3).requires_grad_()
    value = torch.utils.checkpoint.checkpoint(az.torch(lambda x: az.sum(az.sin(x))), x, use_reentrant=False)
    same(torch.autograd.grad(value, x), (torch.cos(x),))


def train(step: Callable[[Any, Any, Any], Any]) -> list[float]:
    """The losses of a module with one layer, which Adam trains."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(numbers(3, 2))
            self.bias = torch.nn.Parameter(numbers(3, seed=1))

        def forward(self, x: Any) -> Any:
            return step(self.weight, self.bias, x)

    model, x, y = Model(), numbers(5, 2, seed=2), torch.tanh(numbers(5, 3, seed=3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_module_is_trained() -> None:
    found = train(az.torch(layer))
    np.testing.assert_allclose(found, train(BY_NAME["layer"].meaning), rtol=1e-10)
    assert found[-1] < found[0] / 2
