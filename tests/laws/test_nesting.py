"""Every construct inside every other one, empty, once and an odd number of times: everywhere the same, and no gap."""

import numpy as np
import pytest
from agreement import everywhere, exact
from coverage import Cells, classes_of
from nesting import INNER, OUTER, expected, nested
from programs import CASES, numbers
from sampling import some

pytestmark = pytest.mark.unguarded

SIZES = (0, 1, 3)
COLUMNS = (*INNER, "index")


@pytest.mark.parametrize("name", INNER)
def test_an_inner_snippet_adds(name: str) -> None:
    program = nested("generate", name)
    x = numbers(7)
    np.testing.assert_array_equal(program(x), x + 1)


@pytest.mark.parametrize("inside", INNER)
@pytest.mark.parametrize("outside", some(OUTER, 2))
def test_every_construct_inside_every_other_one(outside: str, inside: str) -> None:
    program = nested(outside, inside)
    for size in SIZES:
        x = numbers(size)
        everywhere(program, (x,), exact, wanted=expected(outside, x))


@pytest.mark.slow
def test_no_cell_of_the_table_is_empty() -> None:
    """``pytest -s`` shows the table: a row an outer construct, a mark for each class of how often it ran."""
    cells = Cells()
    for outside in OUTER:
        for inside in INNER:
            for size in SIZES:
                cells.run(nested(outside, inside), (numbers(size),))
    for case in CASES:
        for arguments in case.arguments:
            cells.run(case.program, arguments)
    print("\n" + cells.table(tuple(OUTER), COLUMNS))
    every = [(row, column, found) for row in OUTER for column in COLUMNS for found in classes_of(row)]
    assert [cell for cell in every if cell not in cells.seen] == []
