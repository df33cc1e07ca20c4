"""The type rules of the constructs, to which the rows of ``constructs.py`` refer.

A rule gets the static part, the types of the arguments and the result types of the blocks, and gives the types of
the results. It raises TypeError, in terms of the construct, when they do not fit together. One whose name begins with
``of_`` gives the types of the parameters of the next block, after blocks that give results of these types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .source import at_line
from .types import (
    MOST_AXES,
    Accumulator,
    ArrayType,
    FunctionType,
    Itself,
    Named,
    Scalar,
    TupleType,
    Type,
    all_dims,
    array_of,
    bool_,
    dims,
    element,
    i64,
    is_float,
    rank,
)

Static = tuple[Any, ...]
Types = Sequence[Type]
Blocks = Sequence[Sequence[Type]]  # the types of the results of each
Results = tuple[Type, ...]

TypeRule = Callable[[Static, Types, Blocks], Results]
BinderRule = TypeRule  # of which the blocks are those before


def primitive(static: Static, args: Types, blocks: Blocks) -> Results:
    return (static[0].result_type([_scalar("primitive", type) for type in args]),)


def size(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(isinstance(args[0], ArrayType) and 0 <= static[0] < rank(args[0]), "size of an axis", args)
    return (i64,)


def index(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(isinstance(args[0], ArrayType) and len(args) - 1 == rank(args[0]), "one index an axis", args)
    _integers("index", args[1:])
    return (element(args[0]),)


def cond(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(args[0] == bool_, "a bool as test", args)
    _expect(tuple(blocks[0]) == tuple(blocks[1]), "branches of one type", [*blocks[0], *blocks[1]])
    return tuple(blocks[0])


def generate(static: Static, args: Types, blocks: Blocks) -> Results:
    _integers("generate", args)
    return tuple([_stacked(static[0], type) for type in blocks[0]])


def loop(static: Static, args: Types, blocks: Blocks) -> Results:
    _integers("loop", args[:1])
    state = tuple(args[1:])
    _expect(tuple(blocks[0][: len(state)]) == state, "a body that keeps the state's type", [*blocks[0], *state])
    return state + tuple([_stacked(static[0], type) for type in blocks[0][len(state) :]])


def open_loop(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(tuple(blocks[0]) == (bool_,), "a test that gives one bool", blocks[0])
    _expect(tuple(blocks[1]) == tuple(args), "a body that keeps the state's type", [*blocks[1], *args])
    return (*args, i64)


def combination(extents: int) -> TypeRule:
    """The rule for elements over so many extents, with neutral elements behind them, and an operator."""

    def rule(static: Static, args: Types, blocks: Blocks) -> Results:
        return _combined(args[:extents], args[extents:], blocks[0], blocks[1])

    return rule


def of_combination(extents: int) -> BinderRule:
    """The binders of an element, then those of an operator, with neutral elements behind so many extents."""
    return lambda static, args, earlier: (*args[extents:], *args[extents:]) if earlier else (i64,)


def stacked(rule: TypeRule) -> TypeRule:
    """The rule whose results are stacked along the dim of the static part."""
    return lambda static, args, blocks: tuple([_stacked(static[0], type) for type in rule(static, args, blocks)])


def binned(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(blocks[0][:1] == (i64,), "elements that begin with an i64 bin", blocks[0])
    return _combined(args[:2], args[2:], blocks[0][1:], blocks[1])


def scatter(static: Static, args: Types, blocks: Blocks) -> Results:
    return _scattered(args[: static[1]], args[static[1] :], blocks[0])


def argsort(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(isinstance(args[0], ArrayType) and rank(args[0]) == 1, "a vector to sort", args)
    return (ArrayType(i64, dims(args[0])),)


def custom(static: Static, args: Types, blocks: Blocks) -> Results:
    floating, results = _floating(args), _floating(blocks[0])
    for rule, block in zip(rules_of(static), blocks[1:], strict=True):
        wanted = {"jvp": results, "vjp": floating}[rule]
        _expect(tuple(block) == wanted, f"a {rule} rule that gives ({', '.join(map(str, wanted))})", block)
    return tuple(blocks[0])


def of_custom(static: Static, args: Types, earlier: Blocks) -> Results:
    if not earlier:
        return tuple(args)
    itself = Itself(tuple(args), tuple(earlier[0]))
    return (itself, *args, *_floating(args if static[len(earlier) - 1] == "jvp" else earlier[0]))


def rules_of(static: Static) -> tuple[str, ...]:
    """The rules that a custom has a block for: neither a "checkpoint", whose derivatives are those of its body, nor one
    that is built later."""
    return tuple([rule for rule in static if isinstance(rule, str) and rule != "checkpoint"])


def function(static: Static, args: Types, blocks: Blocks) -> Results:
    type = static[0]
    _known(type)
    _expect(tuple(blocks[0]) == type.results, f"a body of a function {type}", blocks[0])
    return (type,)


def apply(static: Static, args: Types, blocks: Blocks) -> Results:
    function = args[0]
    if not isinstance(function, FunctionType):
        raise TypeError(f"apply takes a function, got {function}")
    _expect(tuple(args[1:]) == function.parameters, f"arguments of a function {function}", args[1:])
    return function.results


def pack(static: Static, args: Types, blocks: Blocks) -> Results:
    return (_known(TupleType(tuple(args))),)


def project(static: Static, args: Types, blocks: Blocks) -> Results:
    items = args[0].items if isinstance(args[0], TupleType) else ()
    _expect(0 <= static[0] < len(items), f"a tuple with an item {static[0]}", args)
    return (items[static[0]],)


def declared(static: Static, args: Types, blocks: Blocks) -> Results:
    named, variant = static
    wanted = tuple(named.fields(variant).values())
    _expect(tuple(args) == wanted, f"the fields ({', '.join(map(str, wanted))}) of {named}.{variant}", args)
    return (_known(named),)


def case(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(isinstance(args[0], Named), "a value of a declared type", args)
    complete = len(static) > 0 and set(static) == _variants(args[0])
    _expect(complete, f"a branch for each variant of {args[0]}", args)
    for block in blocks[1:]:
        _expect(tuple(block) == tuple(blocks[0]), "branches of one type", [*blocks[0], *block])
    return tuple(blocks[0])


def of_case(static: Static, args: Types, earlier: Blocks) -> Results:
    value, variant = args[0], static[len(earlier)]
    if not isinstance(value, Named) or variant not in value.declaration.variants:
        raise TypeError(f"case of {', '.join(map(str, static))} takes a value of a declared type, got {value}")
    return tuple(value.fields(variant).values())


def of_opened(static: Static, args: Types, earlier: Blocks) -> Results:
    _, fields = static[len(earlier)]
    return (i64,) if fields is None else tuple(fields)


def opened(static: Static, args: Types, blocks: Blocks) -> Results:
    _integers("open", args)
    for block in blocks[1:]:
        _expect(tuple(block) == tuple(blocks[0]), "branches of one type", [*blocks[0], *block])
    return tuple(blocks[0])


def add_to(static: Static, args: Types, blocks: Blocks) -> Results:
    target = args[0]
    _expect(isinstance(target, Accumulator), "an accumulator", args)
    _expect(args[1] == element(target), "a value of the accumulator's scalar type", args)
    _expect(len(args) - 2 == rank(target), "one index an axis", args)
    _integers("add_to", args[2:])
    return ()


def require(static: Static, args: Types, blocks: Blocks) -> Results:
    _expect(args[0] == bool_, "a bool as test", args)
    _integers("require", args[1:])
    return ()


def no_binders(static: Static, args: Types, earlier: Blocks) -> Results:
    return ()


def _combined(
    extents: Sequence[Type], neutrals: Sequence[Type], elements: Sequence[Type], results: Sequence[Type]
) -> Results:
    """The types that an operator combines."""
    _integers("a reduction", extents)
    _expect(tuple(elements) == tuple(neutrals), "elements of the neutral's type", [*elements, *neutrals])
    _expect(tuple(results) == tuple(neutrals), "an operator that gives an element", [*results, *neutrals])
    return tuple(neutrals)


def _scattered(extents: Sequence[Type], destinations: Sequence[Type], results: Sequence[Type]) -> Results:
    """The destinations, when indices and values fit into them."""
    _integers("scatter", extents)
    axes = len(results) - len(destinations)
    _expect(axes > 0 and len(destinations) > 0, "indices and a value for each destination", results)
    _integers("scatter", results[:axes])
    for destination, value in zip(destinations, results[axes:], strict=True):
        _expect(isinstance(destination, ArrayType) and rank(destination) >= axes, "arrays to write to", destinations)
        _expect(dims(destination)[:axes] == dims(destinations[0])[:axes], "destinations of one size", destinations)
        _expect(value == _stripped(destination, axes), f"a value for a place of {destination}", results)
    return tuple(destinations)


def _stripped(type: Type, axes: int) -> Type:
    return array_of(element(type), dims(type)[axes:])


def _floating(types: Sequence[Type]) -> Results:
    return tuple(type for type in types if is_float(type))


def _variants(type: Type) -> set[str]:
    return set(type.declaration.variants) if isinstance(type, Named) else set()


def _known(type: Type) -> Type:
    """A type of the higher-order fragment, whose sizes the arguments of a call determine."""
    for dim in all_dims(type):
        if not dim.is_static():
            raise TypeError(f"sizes inside {type} are known from the arguments of a call; {dim} is not")
    return type


def _stacked(dim: Any, type: Type) -> Type:
    sizes = (dim, *dims(_plain(type)))
    if len(sizes) > MOST_AXES:
        raise ValueError(at_line(f"an array of {len(sizes)} axes: there are at most {MOST_AXES}, as in NumPy"))
    return array_of(element(type), sizes)


def _plain(type: Type) -> Scalar | ArrayType:
    if not isinstance(type, Scalar | ArrayType):
        raise TypeError(f"arrays hold scalars, not values of type {type}")
    return type


def _scalar(op: str, type: Type) -> Scalar:
    if not isinstance(type, Scalar):
        raise TypeError(f"{op} takes scalars, got {type}")
    return type


def _integers(op: str, types: Sequence[Type]) -> None:
    for type in types:
        if type != i64:
            raise TypeError(f"{op} takes i64 sizes and indices, got {type}")


def _expect(condition: bool, wanted: str, got: Sequence[Type]) -> None:
    if not condition:
        raise TypeError(f"expected {wanted}, got {', '.join(map(str, got))}")
