"""Programs in ``torch.compile`` and ``torch.export``, and their custom operators by themselves."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from other_libraries import pytorch
from tensor_programs import BY_NAME, FORMULAS, Formula, layer, mixed, numbers, positive, same, scalars

import adze as az

torch = pytorch()
func = torch.func

pytestmark = pytest.mark.unguarded

SIZED = [formula for formula in FORMULAS if formula.program is not positive]
each = pytest.mark.parametrize("formula", SIZED, ids=lambda formula: formula.name)


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> None:
    """What was compiled is forgotten. Dynamo reads our code, which typeguard has rewritten where it checks."""
    if request.config.getoption("typeguard_packages"):
        pytest.skip("needs --typeguard-packages=, as `make unit` has it")
    torch.compiler.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """As a graph without breaks, with its derivative, run by PyTorch's own kernels."""
    made: Callable[..., Any] = torch.compile(function, fullgraph=True, **{"backend": "aot_eager", **options})
    return made


# Dynamo and AOTAutograd


@pytest.mark.rest
@each
def test_compiled(formula: Formula) -> None:
    """The value and one backward, of arrays whose sizes are not known to the compiler."""

    def loss(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *moving: sum([torch.sum(torch.cos(part)) for part in run(*[2 * part for part in moving])])

    moving = formula.moving(True)
    found = compiled(loss(formula.fixed(az.torch(formula.program))), dynamic=True)(*moving)
    expected = loss(formula.fixed(formula.meaning))(*moving)
    same(found, expected)
    same(torch.autograd.grad(found, moving), torch.autograd.grad(expected, moving))


def test_structures_and_numbers() -> None:
    f = az.torch(mixed)
    x, _, chosen = BY_NAME["mixed"].arguments()
    found = compiled(lambda x, k: f(x=x, k=k + 1, chosen=chosen))(x, 2)
    same(found, BY_NAME["mixed"].meaning(x, 3, chosen))


@pytest.mark.parametrize("dynamic", [False, True])
def test_static_parameters(dynamic: bool) -> None:
    @az.program
    def scaled(x: az.Array[az.f64, "n"], times: int, shift: az.f64):
        return x * times + shift

    run, x = compiled(az.torch(scaled), dynamic=dynamic), numbers(3)
    for times, shift in ((3, 0.5), (4, 1.5)):
        same(run(x, times, shift), x * times + shift)


def test_one_compilation_serves_many_sizes() -> None:
    run = compiled(az.torch(layer), dynamic=True)
    w, b, _ = BY_NAME["layer"].arguments()
    run(w, b, numbers(4, 3))
    with torch.compiler.set_stance("fail_on_recompile"):
        same(run(w, b, numbers(7, 3)), torch.tanh(numbers(7, 3) @ w.T + b))


TRANSFORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad": func.grad,
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (torch.cos(x),)),
    "vmap": lambda f: lambda x: torch.vmap(f)(torch.stack([x, 2 * x])),
    "hessian": func.hessian,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_inside(transform: str) -> None:
    w, b, x = BY_NAME["layer"].arguments()
    f = az.torch(layer)
    found = compiled(TRANSFORMS[transform](lambda b: torch.sum(f(w, b, x) ** 2)))(b)
    same(found, TRANSFORMS[transform](lambda b: torch.sum(torch.tanh(x @ w.T + b) ** 2))(b))


def test_the_second_backward_is_refused_by_pytorch() -> None:
    x = numbers(3).requires_grad_()
    f = az.torch(lambda x: az.sum(az.exp(x)))
    (gradient,) = torch.autograd.grad(compiled(f)(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(gradient.sum(), x)


def test_sizes_that_the_run_decides() -> None:
    f = az.torch(positive)
    with pytest.raises(Exception, match=r"the run decides the size of a result of type f64.* compiles or exports"):
        compiled(f)(numbers(3))
    with pytest.raises(Exception, match=r"the run decides the size of a result of type f64.* compiles or exports"):
        torch.export.export(Module(f), (numbers(3),))


def test_wrong_input() -> None:
    f = az.torch(scalars)
    with pytest.raises(Exception, match=r"'x' is f64, got a tensor of torch.float32 .*test_torch_compiler\.py"):
        compiled(f)(torch.tensor(1.0), torch.tensor(1.0))


@pytest.mark.slow
def test_inductor() -> None:
    formula = BY_NAME["recurrence"]
    moving = formula.moving(True)
    run = formula.fixed(az.torch(formula.program))
    found = compiled(lambda *x: torch.sin(run(*x)[0]), backend="inductor")(*moving)
    expected = torch.sin(formula.meaning(*moving))
    same(found, expected)
    same(torch.autograd.grad(found, moving), torch.autograd.grad(expected, moving))


# Export


class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    w, b, x = BY_NAME["layer"].arguments()
    f = az.torch(layer)
    batch = torch.export.Dim("batch", min=2)
    shapes = ((None, None, {0: batch}),)
    made = torch.export.export(Module(f), (w, b, x), dynamic_shapes=shapes, strict=strict)
    called = [node.target for node in made.graph.nodes if node.op == "call_function"]
    assert f.operator(w, b, x) in called
    same(made.module()(w, b, numbers(5, 3)), torch.tanh(numbers(5, 3) @ w.T + b))


PROCESS = """
import sys, torch, adze as az

@az.program
def swing(x: az.Array[az.f64, "n"]):
    return az.sin(x) * az.sum(x)

x = torch.arange(3, dtype=torch.float64)
operator = az.torch(swing).operator(x)
path = sys.argv[1]
if sys.argv[2] == "save":
    class Module(torch.nn.Module):
        def forward(self, x):
            return az.torch(swing)(x) + 1
    torch.export.save(torch.export.export(Module(), (x,)), path)
else:
    torch.testing.assert_close(torch.export.load(path).module()(x), torch.sin(x) * x.sum() + 1)
print(operator)
"""


@pytest.mark.slow
def test_exported_to_another_process(tmp_path: Path) -> None:
    """The name of an operator says what it computes: the same in another process that has asked for it."""
    names = []
    (tmp_path / "swing.py").write_text(PROCESS)
    for what in ("save", "load"):
        command = [sys.executable, "swing.py", "exported.pt2", what]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert run.returncode == 0, run.stderr
        names.append(run.stdout)
    assert names[0] == names[1] and names[0].startswith("adze.swing_")


# Operators by themselves


@each
def test_opcheck(formula: Formula) -> None:
    f, arguments = az.torch(formula.program), list(formula.arguments())
    operator = f.operator(*arguments)
    for number in formula.floats:
        arguments[number].requires_grad_()
    torch.library.opcheck(operator, tuple(arguments))


def test_opcheck_of_a_derivative() -> None:
    x, y = numbers().requires_grad_(), numbers(seed=1).requires_grad_()
    az.torch(scalars)(x, y).backward()
    name = az.torch(scalars).operator(x, y)._opname
    derivative = getattr(torch.ops.adze, f"{name}_vjp_0_1_of_0").default
    torch.library.opcheck(derivative, (x, y, numbers(seed=2).requires_grad_()))


def test_forward_mode_of_the_bare_operator() -> None:
    """PyTorch's custom operators give zero, without a word."""
    x, y = numbers(), numbers(seed=1)
    operator = az.torch(scalars).operator(x, y)
    with pytest.raises(NotImplementedError, match=r"torch\.ops\.adze\.scalars_\w+ has no forward mode"):
        func.jvp(lambda x: operator(x, y), (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="has no forward mode"):
        operator(x, torch.autograd.forward_ad.make_dual(y, x))


def test_derivatives_and_batches_of_the_bare_operator() -> None:
    x, y = numbers(), numbers(seed=1)
    operator = az.torch(scalars).operator(x, y)
    assert torch.autograd.gradgradcheck(operator, (x.requires_grad_(), y.requires_grad_()))
    w, b, x = BY_NAME["layer"].arguments()
    operator, batch = az.torch(layer).operator(w, b, x), torch.stack([x, -x], -1)
    same(torch.vmap(operator, (None, None, 2))(w, b, batch), torch.tanh(torch.stack([x, -x]) @ w.T + b))


def test_traced_by_make_fx() -> None:
    x = numbers(3)
    f = az.torch(lambda x: az.sum(az.sin(x)))
    for mode in ("real", "symbolic"):
        traced = torch.fx.experimental.proxy_tensor.make_fx(func.grad(f), tracing_mode=mode)(x)
        same(traced(2 * x), torch.cos(2 * x))
