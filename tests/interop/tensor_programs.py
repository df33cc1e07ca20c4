"""Programs and the same formulas in PyTorch, for the tests of ``az.torch``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaf_programs import layer, mixed, picked, positive, recurrence, scalars
from other_libraries import pytorch

import adze as az

torch = pytorch()


@dataclass(frozen=True)
class Formula:
    """A program, the same in PyTorch, arguments, and which of these are differentiated."""

    program: az.Program
    meaning: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    floats: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.program.name

    def fixed(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """A function of the tensors that are differentiated, giving the results that are."""
        given = self.arguments()

        def run(*moving: Any) -> tuple[Any, ...]:
            all_of_them = list(given)
            for number, tensor in zip(self.floats, moving, strict=True):
                all_of_them[number] = tensor
            return tuple([result for result in tree(function(*all_of_them)) if result.is_floating_point()])

        return run

    def moving(self, requires_grad: bool = False) -> tuple[Any, ...]:
        """The tensors that are differentiated."""
        given = self.arguments()
        return tuple([given[number].clone().requires_grad_(requires_grad) for number in self.floats])


def tree(result: Any) -> list[Any]:
    """The tensors in a structure of them."""
    found: list[Any] = torch.utils._pytree.tree_leaves(result)
    return found


def same(found: Any, expected: Any) -> None:
    """Equal structures of tensors of the same types, up to rounding."""
    assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(expected)
    for one, other in zip(tree(found), tree(expected), strict=True):
        torch.testing.assert_close(one, other)


def numbers(*shape: int, seed: int = 0) -> Any:
    """A tensor of f64, the same for the same seed."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def mixed_meaning(x: Any, k: Any, chosen: Any) -> Any:
    found = torch.where(chosen, x**2 * k, torch.sin(x))
    return {"found": found, "sums": (found.sum(), chosen.sum(), chosen.clone())}


def recurrence_meaning(x: Any, rate: Any) -> Any:
    state = x
    for _ in range(5):
        state = torch.sin(state) + rate * x
    return state.sum()


FORMULAS = [
    Formula(
        layer,
        lambda w, b, x: torch.tanh(x @ w.T + b),
        lambda: (numbers(2, 3), numbers(2, seed=1), numbers(3, 3, seed=2)),
        (0, 1, 2),
    ),
    Formula(scalars, lambda x, y: torch.sin(x) * y**3, lambda: (numbers(), numbers(seed=1)), (0, 1)),
    Formula(
        mixed,
        mixed_meaning,
        lambda: (numbers(4), torch.tensor(3), torch.tensor([True, False, False, True])),
        (0,),
    ),
    Formula(recurrence, recurrence_meaning, lambda: (numbers(3), numbers(seed=1)), (0, 1)),
    Formula(
        picked,
        lambda table, rows: torch.logsumexp(table[rows], 1),
        lambda: (numbers(3, 2), torch.tensor([2, 0, 2, 1])),
        (0,),
    ),
    Formula(
        positive,
        lambda x: (x**3)[x > 0],
        lambda: (torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64),),
        (0,),
    ),
]
BY_NAME = {formula.name: formula for formula in FORMULAS}
