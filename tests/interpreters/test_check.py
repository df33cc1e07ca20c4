"""The type checker: what programs make passes, and ill-typed terms are rejected with the operation."""

from typing import Any

import pytest
from programs import CASES, Case

import adze as az
from adze.core.dims import Dim, Opaque
from adze.core.primitives import add
from adze.core.terms import NOWHERE, Atom, Block, Failure, Literal, Operation, Size, Variable
from adze.core.types import (
    Accumulator,
    ArrayType,
    Declaration,
    FunctionType,
    Itself,
    Named,
    Scalar,
    TupleType,
    Type,
    bool_,
    f32,
    f64,
    i64,
)

N = Size(Dim.parse("n"))
ZERO, ONE, TWO = (Literal.of(k, i64) for k in range(3))
REAL = Literal.of(0.0, f64)
VECTOR = ArrayType(f64, (Dim.parse("n"),))
OPAQUE = Dim.atom(Opaque(0))


def var(index: int, type: Type = f64) -> Variable:
    return Variable(index, type)


def op(name: str, args: tuple[Atom, ...], types: tuple[Type, ...], *blocks: Block, static: Any = ()) -> Operation:
    return Operation(name, static, args, blocks, types, NOWHERE)


def block(binders: tuple[Type, ...], operations: tuple[Operation, ...], results: tuple[Atom, ...]) -> Block:
    return Block(binders, operations, results)


def generate(extent: Atom, dim: Dim, element: Scalar = f64, result: Atom = REAL) -> Operation:
    return op("generate", (extent,), (ArrayType(element, (dim,)),), block((i64,), (), (result,)), static=(dim,))


SUM = op("primitive", (var(1), var(0)), (f64,), static=(add,))


@pytest.mark.unguarded
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_programs_are_well_typed(case: Case, simplified: bool) -> None:
    for arguments in case.arguments:
        term = case.program.instance_for(case.program.bind(arguments, {})).term
        az.check(az.simplify(term) if simplified else term)


def test_a_program_and_an_instance_are_checked() -> None:
    @az.program
    def f(x: az.Array[az.f64, "n"]) -> az.f64:
        return az.sum(x)

    az.check(f)
    az.check(f.at())


ADDER = Accumulator(VECTOR)
TRUE = Literal.of(True, bool_)
FUNCTION = FunctionType((f64,), (f64,))
POINT = Named(Declaration("Point", (), {"Point": {"x": f64}}))
EITHER = Named(Declaration("Either", (), {"Left": {"value": f64}, "Right": {"value": i64}}))
ELEMENT = block((i64,), (), (REAL,))
ADDITION = block((f64, f64), (SUM,), (var(0),))
ILL_TYPED = {
    "an unbound variable": (block((f64,), (), (var(1),)), "variable 1 is not bound: 1 values are in scope"),
    "a negative variable": (block((f64,), (), (var(-1),)), "variable -1 is not bound"),
    "a variable of another type": (block((f32,), (), (var(0),)), "with type f64, but bound with type f32"),
    "a primitive of two types": (
        block((f64, f32), (op("primitive", (var(1), var(0, f32)), (f64,), static=(add,)),), (var(0),)),
        r"add takes operands of one type, got f64, f32; in operation 0, f64 = primitive add\(%1: f64, %0: f32\)",
    ),
    "a primitive on arrays": (
        block((VECTOR,), (op("primitive", (var(0, VECTOR),) * 2, (f64,), static=(add,)),), (var(0),)),
        "primitive takes scalars, got f64",
    ),
    "a wrong result type": (
        block((f64, f64), (op("primitive", (var(1), var(0)), (f32,), static=(add,)),), (var(0, f32),)),
        r"it yields \(f64\), but binds \(f32\)",
    ),
    "an index that is not an integer": (
        block((VECTOR,), (op("index", (var(0, VECTOR), REAL), (f64,)),), (var(0),)),
        "index takes i64 sizes and indices, got f64",
    ),
    "two indices into a vector": (
        block((VECTOR,), (op("index", (var(0, VECTOR), ZERO, ZERO), (f64,)),), (var(0),)),
        "expected one index an axis",
    ),
    "the size of a missing axis": (
        block((VECTOR,), (op("size", (var(0, VECTOR),), (i64,), static=(1,)),), (var(0, i64),)),
        "expected size of an axis",
    ),
    "a test that is not bool": (
        block((f64,), (op("cond", (var(0),), (f64,), block((), (), (REAL,)), block((), (), (REAL,))),), (var(0),)),
        "expected a bool as test, got f64",
    ),
    "branches of two types": (
        block(
            (bool_,),
            (op("cond", (var(0, bool_),), (f64,), block((), (), (REAL,)), block((), (), (ONE,))),),
            (var(0),),
        ),
        "expected branches of one type, got f64, i64",
    ),
    "a branch with parameters": (
        block(
            (bool_,),
            (op("cond", (var(0, bool_),), (f64,), block((f64,), (), (var(0),)), block((), (), (REAL,))),),
            (var(0),),
        ),
        r"a block binds \(f64\) where its operation gives \(\)",
    ),
    "a missing branch": (
        block((bool_,), (op("cond", (var(0, bool_),), (f64,), block((), (), (REAL,))),), (var(0),)),
        "cond has 2 blocks, not 1",
    ),
    "a size that is not the extent": (
        block((), (generate(N, Dim.parse("m")),), (var(0, ArrayType(f64, (Dim.parse("m"),))),)),
        "its size is written m, but its extent is n",
    ),
    "one opaque size for two extents": (
        block(
            (i64, i64),
            (generate(var(0, i64), OPAQUE), generate(var(2, i64), OPAQUE)),
            (var(0, ArrayType(f64, (OPAQUE,))),),
        ),
        r"its size is written \?0, but its extent is \?2",
    ),
    "an opaque size of nothing": (
        block((VECTOR,), (op("index", (Variable(0, ArrayType(f64, (OPAQUE,))), ZERO), (f64,)),), (var(0),)),
        "with type f64.*, but bound with type f64.n.",
    ),
    "an array whose size depends on the index": (
        block(
            (),
            (
                op(
                    "generate",
                    (N,),
                    (ArrayType(f64, (Dim.parse("n"), OPAQUE)),),
                    block((i64,), (generate(var(0, i64), OPAQUE),), (var(0, ArrayType(f64, (OPAQUE,))),)),
                    static=(Dim.parse("n"),),
                ),
            ),
            (var(0, ArrayType(f64, (Dim.parse("n"), OPAQUE))),),
        ),
        r"the size \?0 of a value of type f64\[\?0\] leaves the block that makes it",
    ),
    "a neutral element of another type": (
        block(
            (VECTOR,),
            (
                op(
                    "reduce",
                    (N, ZERO),
                    (i64,),
                    block((i64,), (op("index", (var(1, VECTOR), var(0, i64)), (f64,)),), (var(0),)),
                    block((i64, i64), (), (var(0, i64),)),
                ),
            ),
            (var(0, i64),),
        ),
        "expected elements of the neutral's type, got f64, i64",
    ),
    "an operator of another type": (
        block(
            (),
            (op("reduce", (N, REAL), (f64,), block((i64,), (), (REAL,)), block((f32, f32), (), (var(0, f32),))),),
            (var(0),),
        ),
        r"a block binds \(f32, f32\) where its operation gives \(f64, f64\)",
    ),
    "a loop that changes its state": (
        block(
            (),
            (op("loop", (N, REAL), (f64,), block((i64, f64), (), (var(1, i64),)), static=(Dim.parse("n"),)),),
            (var(0),),
        ),
        "expected a body that keeps the state's type, got i64, f64",
    ),
    "an accumulator that is read": (
        block(
            (VECTOR,),
            (
                op(
                    "accumulate",
                    (var(0, VECTOR),),
                    (VECTOR, f64),
                    block((ADDER,), (op("index", (var(0, ADDER), ZERO), (f64,)),), (var(0),)),
                ),
            ),
            (var(0),),
        ),
        "an accumulator is only written to, by add_to",
    ),
    "an accumulator that escapes": (
        block(
            (VECTOR,),
            (op("accumulate", (var(0, VECTOR),), (VECTOR, ADDER), block((ADDER,), (), (var(0, ADDER),))),),
            (),
        ),
        "an accumulator leaves its scope",
    ),
    "an accumulator as a value": (
        block(
            (VECTOR,),
            (
                op(
                    "accumulate",
                    (var(0, VECTOR),),
                    (VECTOR,),
                    block((ADDER,), (op("accumulate", (var(0, ADDER),), (ADDER,), block((ADDER,), (), ())),), ()),
                ),
            ),
            (),
        ),
        "an accumulator is only written to",
    ),
    "an update of another type": (
        block(
            (VECTOR,),
            (
                op(
                    "accumulate",
                    (var(0, VECTOR),),
                    (VECTOR,),
                    block((ADDER,), (op("add_to", (var(0, ADDER), ONE, ZERO), ()),), ()),
                ),
            ),
            (),
        ),
        "expected a value of the accumulator's scalar type",
    ),
    "an update of a value": (
        block((VECTOR,), (op("add_to", (var(0, VECTOR), REAL, ZERO), ()),), ()),
        r"expected an accumulator, got f64\[n\]",
    ),
    "a requirement of a number": (
        block((f64,), (op("require", (var(0),), (), static=(Failure("size", "", NOWHERE),)),), ()),
        "expected a bool as test, got f64",
    ),
    "a size that a call does not know": (
        block((), (), (Size(OPAQUE),)),
        r"the size \?0 is not known from the arguments of a call",
    ),
    **{
        name: (block(binders, (operation,), ()), message)
        for name, (binders, operation, message) in {
            "a scan of another size": (
                (),
                op(
                    "scan", (N, REAL), (ArrayType(f64, (Dim.parse("m"),)),), ELEMENT, ADDITION, static=(Dim.parse("n"),)
                ),
                r"it yields \(f64\[n\]\), but binds \(f64\[m\]\)",
            ),
            "a scan whose size is not its extent": (
                (),
                op(
                    "scan", (N, REAL), (ArrayType(f64, (Dim.parse("m"),)),), ELEMENT, ADDITION, static=(Dim.parse("m"),)
                ),
                "its size is written m, but its extent is n",
            ),
            "a histogram without bins": (
                (),
                op("histogram", (N, N, REAL), (VECTOR,), ELEMENT, ADDITION, static=(Dim.parse("n"),)),
                "expected elements that begin with an i64 bin, got f64",
            ),
            "a scatter of other values": (
                (VECTOR,),
                op("scatter", (N, var(0, VECTOR)), (VECTOR,), block((i64,), (), (ZERO, ONE)), static=(True, 1)),
                r"expected a value for a place of f64\[n\], got i64, i64",
            ),
            "a scatter without indices": (
                (VECTOR,),
                op("scatter", (N, var(0, VECTOR)), (VECTOR,), ELEMENT, static=(True, 1)),
                "expected indices and a value for each destination, got f64",
            ),
            "a scatter with too many indices": (
                (VECTOR,),
                op("scatter", (N, var(0, VECTOR)), (VECTOR,), block((i64,), (), (ZERO, ZERO, REAL)), static=(True, 1)),
                r"expected arrays to write to, got f64\[n\]",
            ),
            "a sort of a number": ((f64,), op("argsort", (var(0),), (VECTOR,)), "expected a vector to sort, got f64"),
            "a while whose test is a number": (
                (f64,),
                op("while", (var(0),), (f64, i64), block((f64,), (), (var(0),)), block((f64,), (), (var(0),))),
                "expected a test that gives one bool, got f64",
            ),
            "a while that changes its state": (
                (f64,),
                op("while", (var(0),), (f64, i64), block((f64,), (), (TRUE,)), block((f64,), (), (ONE,))),
                "expected a body that keeps the state's type, got i64, f64",
            ),
            "a rule that gives too little": (
                (f64,),
                op(
                    "custom",
                    (var(0),),
                    (f64,),
                    block((f64,), (), (var(0),)),
                    block((Itself((f64,), (f64,)), f64, f64), (), ()),
                    static=("jvp",),
                ),
                r"expected a jvp rule that gives \(f64\)",
            ),
            "a function of another type": (
                (),
                op("function", (), (FUNCTION,), block((f64,), (), (ONE,)), static=(FUNCTION,)),
                r"expected a body of a function \(f64\) -> f64, got i64",
            ),
            "a recursion without itself": (
                (),
                op("fix", (), (FUNCTION,), block((f64,), (), (var(0),)), static=(FUNCTION,)),
                r"a block binds \(f64\) where its operation gives \(\(f64\) -> f64, f64\)",
            ),
            "a function of data of unknown size": (
                (),
                op("function", (), (), block((), (), ()), static=(FunctionType((ArrayType(f64, (OPAQUE,)),), ()),)),
                "a block binds",
            ),
            "a number that is applied": ((f64,), op("apply", (var(0),), (f64,)), "apply takes a function, got f64"),
            "an argument of another type": (
                (FUNCTION,),
                op("apply", (var(0, FUNCTION), ONE), (f64,)),
                r"expected arguments of a function \(f64\) -> f64, got i64",
            ),
            "an item that a tuple has not": (
                (TupleType((f64,)),),
                op("project", (var(0, TupleType((f64,))),), (f64,), static=(1,)),
                r"expected a tuple with an item 1, got \(f64,\)",
            ),
            "a field of another type": (
                (),
                op("construct", (ONE,), (POINT,), static=(POINT, "Point")),
                r"expected the fields \(f64\) of Point.Point, got i64",
            ),
            "a case of a number": (
                (f64,),
                op("case", (var(0),), (f64,), block((f64,), (), (var(0),)), static=("Point",)),
                "case of Point takes a value of a declared type, got f64",
            ),
            "a case with a branch too few": (
                (EITHER,),
                op("case", (var(0, EITHER),), (f64,), block((f64,), (), (var(0),)), static=("Left",)),
                "expected a branch for each variant of Either, got Either",
            ),
            "a case whose branches differ": (
                (EITHER,),
                op(
                    "case",
                    (var(0, EITHER),),
                    (f64,),
                    block((f64,), (), (var(0),)),
                    block((i64,), (), (var(0, i64),)),
                    static=("Left", "Right"),
                ),
                "expected branches of one type, got f64, i64",
            ),
            "an update in a function": (
                (VECTOR,),
                op(
                    "accumulate",
                    (var(0, VECTOR),),
                    (VECTOR,),
                    block(
                        (ADDER,),
                        (
                            op(
                                "function",
                                (),
                                (FunctionType((), ()),),
                                block((), (op("add_to", (var(0, ADDER), REAL, ZERO), ()),), ()),
                                static=(FunctionType((), ()),),
                            ),
                        ),
                        (),
                    ),
                ),
                "an accumulator is written to by a function, which may be applied outside its scope",
            ),
        }.items()
    },
    "no construct": (block((), (op("frobnicate", (), ()),), ()), "no construct is called 'frobnicate'"),
}


@pytest.mark.parametrize("name", ILL_TYPED)
def test_ill_typed_terms_are_rejected(name: str) -> None:
    term, message = ILL_TYPED[name]
    with pytest.raises(TypeError, match=f"ill-typed term: .*{message}"):
        az.check(term)


def test_opaque_sizes_follow_arithmetic() -> None:
    """Arrays of k and of k + 1 elements: the second size is ``?0 + 1`` where ?0 is k."""
    grown = op("primitive", (var(1, i64), ONE), (i64,), static=(add,))
    array = ArrayType(f64, (OPAQUE + 1,))
    first, second = generate(var(0, i64), OPAQUE), generate(var(0, i64), OPAQUE + 1)
    az.check(block((i64,), (first, grown, second), (var(0, array),)))
    other = generate(var(1, i64), OPAQUE + 1)  # of k elements, like the first
    with pytest.raises(TypeError, match=r"its size is written \?0 \+ 1, but its extent is \?1"):
        az.check(block((i64,), (first, other), (var(0, array),)))


def test_a_size_that_only_a_loop_inside_mentions() -> None:
    """What is made of a computed size, where nothing has that size itself."""

    @az.program
    def f(w: az.Array[az.f64, "4"]) -> Any:
        some = az.filter(lambda v: v > 0.3, w)
        joined = az.concatenate((some, some[-2:]))
        return w @ az.triu(az.ones((4, joined.shape[0])), 1)

    az.check(f)
    assert az.evaluate(f)([1.0, 1.0, 1.0, 1.0]).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 4.0]
