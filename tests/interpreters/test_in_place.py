"""Which updates happen in place: the analysis alone, on terms written with the builder."""

from collections.abc import Callable, Sequence

import pytest

from adze.core.builder import Builder, build
from adze.core.graph import Value
from adze.core.placement import to_block
from adze.core.terms import NOWHERE, Block, Failure, Operation
from adze.core.types import ArrayType, bool_, f64, i64
from adze.interpreters.check import check
from adze.interpreters.in_place import InPlace, Places
from adze.interpreters.reads_first import reads_first


class Program:
    """A builder with a size, an index, a scalar, a test, and an array that it made."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.n, self.i, self.j = (builder.variable(i64, name) for name in "nij")
        self.x, self.test = builder.variable(f64, "x"), builder.variable(bool_, "test")
        self.a = self.fresh(1.0)

    def fresh(self, value: float) -> Value:
        return self.b.array([self.n], lambda _: self.b.literal(value, f64))

    def put(self, array: Value, value: Value | None = None, at: Value | None = None) -> Value:
        return self.b.scatter(True, [], [array], lambda: [at or self.i, self.x if value is None else value])[0]

    def at(self, array: Value, index: Value) -> Value:
        return self.b.index(array, [index])


def operations(block: Block, op: str) -> list[Operation]:
    found = []
    for binding in block.bindings:
        found += [binding] if binding.op == op else []
        for inner in binding.blocks:
            found += operations(inner, op)
    return found


def places(write: Callable[[Program], Sequence[Value]], op: str = "scatter") -> list[Places]:
    """The places of the operations of a kind in the program that returns these values."""
    with build() as builder:
        program = Program(builder)
        results = list(write(program))
        binders = [program.n, program.i, program.j, program.x, program.test]
        block, captured = to_block(binders, results, builder.scopes[0].statements)
        assert not captured
    analysis = InPlace(block)
    return [analysis.of(operation) for operation in operations(block, op)]


def taken(write: Callable[[Program], Sequence[Value]]) -> list[tuple[bool, ...]]:
    return [each.taken for each in places(write)]


def test_what_is_dead_is_overwritten() -> None:
    assert taken(lambda p: [p.put(p.put(p.a), at=p.j)]) == [(True,), (True,)]


def test_what_is_read_later_is_not() -> None:
    assert taken(lambda p: [p.put(p.a), p.a]) == [(False,)]
    assert sorted(taken(lambda p: [p.put(p.a), p.put(p.a, at=p.j)])) == [(False,), (True,)]


@pytest.mark.parametrize("unique", [True, False])
def test_a_scatter_that_reads_what_it_overwrites(unique: bool) -> None:
    def reading(shift: bool) -> Callable[[Program], Sequence[Value]]:
        def write(p: Program) -> Sequence[Value]:
            def element(k: Value) -> Sequence[Value]:
                at = p.b.primitive("add", k, p.j)
                return [at, p.at(p.a, k if shift else at)]

            return p.b.scatter(unique, [p.n], [p.a], element)

        return write

    assert taken(reading(shift=True)) == [(False,)]
    assert taken(reading(shift=False)) == [(unique,)]

    def once(p: Program) -> Sequence[Value]:
        return p.b.scatter(unique, [p.b.literal(1, i64)], [p.a], lambda k: [k, p.at(p.a, p.b.primitive("add", k, p.j))])

    assert places(once) == [Places((True,), (), True)]


def test_one_array_is_taken_once() -> None:
    def write(p: Program) -> Sequence[Value]:
        return p.b.scatter(True, [], [p.a, p.a], lambda: [p.i, p.x, p.x])

    assert taken(write) == [(False, False)]


def test_branches() -> None:
    """Both branches give one array: the update of one is in place. Where the array is read later it is not."""

    def write(keep: bool) -> Callable[[Program], Sequence[Value]]:
        def program(p: Program) -> Sequence[Value]:
            def body(k: Value, s: Value, total: Value) -> Sequence[Value]:
                (chosen,) = p.b.cond(p.test, lambda: [p.put(s, at=k)], lambda: [s])
                return [chosen, p.b.primitive("add", p.at(chosen, k), p.at(s, k)) if keep else total]

            return p.b.loop(p.n, [p.a, p.x], body)

        return program

    assert taken(write(keep=False)) == [(True,)]
    assert places(write(keep=False), "cond") == [Places((True,))]
    assert places(write(keep=False), "loop") == [Places((True, False), (0, None), intact=(False, True))]
    assert taken(write(keep=True)) == [(False,)]
    assert places(write(keep=True), "cond") == [Places((False,))]


def test_branches_that_give_different_arrays_copy() -> None:
    def write(p: Program) -> Sequence[Value]:
        other = p.fresh(2.0)
        (chosen,) = p.b.cond(p.test, lambda: [p.a], lambda: [other])
        return [p.put(chosen)]

    assert places(write, "cond") == [Places((False,))]
    assert taken(write) == [(True,)]


def test_a_loop_updates_its_state() -> None:
    def write(p: Program) -> Sequence[Value]:
        return p.b.loop(p.n, [p.a], lambda k, s: [p.put(s, at=k)])

    assert taken(write) == [(True,)]
    assert places(write, "loop") == [Places((True,), (0,), intact=(False,))]


def test_a_loop_whose_initial_is_read_later_copies_it_once() -> None:
    def write(p: Program) -> Sequence[Value]:
        return [*p.b.loop(p.n, [p.a], lambda k, s: [p.put(s, at=k)]), p.a]

    assert taken(write) == [(True,)]
    assert places(write, "loop") == [Places((False,), (0,), intact=(False,))]


def test_a_loop_does_not_overwrite_what_it_captures() -> None:
    def write(p: Program) -> Sequence[Value]:
        return p.b.loop(p.n, [p.x], lambda k, s: [p.at(p.put(p.a, at=k), p.i)])

    assert taken(write) == [(False,)]
    argument = places(lambda p: p.b.loop(p.n, [p.x], lambda k, s: [p.at(p.put(p.fresh(1.0), s, k), p.j)]))
    assert argument == [Places((False,))]  # the array is hoisted out of the loop


def test_states_that_change_places() -> None:
    def write(p: Program) -> Sequence[Value]:
        other = p.fresh(2.0)
        return p.b.loop(p.n, [p.a, other], lambda k, s, t: [t, p.put(s, at=k)])

    assert taken(write) == [(True,)]
    assert places(write, "loop") == [Places((False, False), (1, 0), intact=(False, True))]


def test_two_states_from_one() -> None:
    def write(p: Program) -> Sequence[Value]:
        other = p.fresh(2.0)
        return p.b.loop(p.n, [p.a, other], lambda k, s, t: [p.put(s, at=k), s])

    assert taken(write) == [(False,)]
    assert places(write, "loop") == [Places((False, False), (None, 0), intact=(True, True))]


def test_an_output_that_is_the_state_is_written_first() -> None:
    """It is no use of the state after its update, as one of the updated state, or a next state, is."""
    assert taken(lambda p: p.b.loop(p.n, [p.a], lambda k, s: [p.put(s, at=k), s, s])) == [(True,)]
    assert taken(lambda p: p.b.loop(p.n, [p.a], lambda k, s: [s, p.put(s, at=k)])) == [(False,)]

    def other(p: Program) -> Sequence[Value]:
        """An array made in the iteration is an output where it is updated, too: it is copied there in the end."""

        def body(k: Value, s: Value) -> Sequence[Value]:
            made = p.b.array([p.n], lambda i: p.at(s, i))
            return [p.put(made, at=k), made]

        return p.b.loop(p.n, [p.a], body)

    assert taken(other) == [(False,)]


def test_a_scatter_that_reads_what_no_write_meets() -> None:
    """One row is read, those behind it are written: as one element, and where a loop around it says which row."""

    def write(first: int) -> Callable[[Program], Sequence[Value]]:
        def program(p: Program) -> Sequence[Value]:
            def body(k: Value, s: Value) -> Sequence[Value]:
                def element(i: Value, j: Value) -> Sequence[Value]:
                    row = p.b.primitive("add", p.b.primitive("add", k, i), p.b.literal(first, i64))
                    return [row, j, p.b.primitive("subtract", p.b.index(s, [row, j]), p.b.index(s, [k, j]))]

                return p.b.scatter(True, [p.n, p.n], [s], element)

            return p.b.loop(p.n, [p.b.array([p.n, p.n], lambda i, j: p.x)], body)

        return program

    assert taken(write(1)) == [(True,)]
    assert places(write(1), "loop") == [Places((True,), (0,), intact=(False,))]
    assert places(write(1))[0].reads
    assert taken(write(0)) == [(False,)]


def test_an_unchanged_state_is_where_it_came_from() -> None:
    def write(p: Program) -> Sequence[Value]:
        return [*p.b.loop(p.n, [p.a, p.x], lambda k, s, t: [s, p.b.primitive("add", t, p.at(s, k))]), p.a]

    assert places(write, "loop") == [Places((True, False), (0, None), intact=(True, True))]


def test_arguments_are_never_overwritten() -> None:
    with build() as b:
        n, i = b.variable(i64, "n"), b.variable(i64, "i")
        a = b.variable(ArrayType(f64, (b.literal(3, i64).dim,)), "a")  # type: ignore[arg-type]
        put = b.scatter(True, [], [a], lambda: [i, b.literal(1.0, f64)])[0]
        again = b.scatter(True, [], [put], lambda: [n, b.literal(2.0, f64)])[0]
        block, _ = to_block([n, i, a], [again])
    analysis = InPlace(block)
    assert [analysis.of(operation).taken for operation in block.bindings] == [(False,), (True,)]


def test_while_and_its_test() -> None:
    def write(p: Program) -> Sequence[Value]:
        less = lambda s: p.b.primitive("less", p.at(p.put(s), p.j), p.x)  # noqa: E731
        return p.b.while_loop([p.a], less, lambda s: [p.put(s, at=p.j)])[:1]

    assert taken(write) == [(False,), (True,)]
    assert places(write, "while") == [Places((True,), (0,), intact=(False,))]


def test_an_operation_that_stands_twice_takes_only_what_it_may_take_at_both_places() -> None:
    with build() as b:
        i, x = b.variable(i64, "i"), b.variable(f64, "x")
        a = b.array([b.literal(3, i64)], lambda _: x)
        put = b.scatter(True, [], [a], lambda: [i, x])[0]
        block, _ = to_block([i, x], [put])
        other, _ = to_block([i, x], [put, a])
    make, write = block.bindings
    shared = Block(block.binders, (make, write), other.results, block.names)
    assert shared.bindings[1] is write
    branches = (Block((), (make, write), block.results, ()), Block((), (make, write), other.results[:1], ()))
    cond = Operation("cond", (), (), branches, (write.types[0],))
    whole = InPlace(Block(block.binders, (cond,), (), block.names))
    assert whole.of(write).taken == (True,)
    assert InPlace(shared).of(write).taken == (False,)


def test_reads_go_before_writes() -> None:
    """Two elements change places: both are read before one is written, and both updates are in place."""
    with build() as b:
        n, i, j = (b.variable(i64, name) for name in "nij")
        a = b.array([n], lambda _: b.literal(1.0, f64))
        once = b.scatter(True, [], [a], lambda: [i, b.index(a, [j])])[0]
        twice = b.scatter(True, [], [once], lambda: [j, b.index(a, [i])])[0]
        (total,) = b.loop(n, [twice], lambda k, s: [b.scatter(True, [], [s], lambda: [k, b.index(a, [k])])[0]])
        block, _ = to_block([n, i, j], [twice])
        other, _ = to_block([n, i, j], [total])
    assert [operation.op for operation in block.bindings] == ["generate", "index", "scatter", "index", "scatter"]
    ordered = reads_first(block)
    assert [operation.op for operation in ordered.bindings] == ["generate", "index", "index", "scatter", "scatter"]
    check(ordered)
    places = InPlace(ordered)
    assert [places.of(operation).taken for operation in operations(ordered, "scatter")] == [(True,), (True,)]
    check(reads_first(other))
    assert reads_first(ordered) == ordered


def test_reads_go_before_writes_in_branches() -> None:
    """An array that a branch updates, or an accumulate, is read before."""
    with build() as b:
        n, i, test = b.variable(i64, "n"), b.variable(i64, "i"), b.variable(bool_, "test")
        a = b.array([n], lambda _: b.literal(1.0, f64))
        put = b.scatter(True, [], [a], lambda: [i, b.literal(2.0, f64)])[0]
        kept = b.emit("cond", (), [test], [b.close((), (), (put,)), b.close((), (), (a,))])[0]
        inside = b.body([], lambda: [b.scatter(True, [], [a], lambda: [n, b.literal(3.0, f64)])[0]])
        other = b.emit("accumulate", (), [], [inside])[0]
        blocks = [to_block([n, i, test], [result, b.index(a, [i])])[0] for result in (kept, other)]
    for block in blocks:
        ordered = reads_first(block)
        assert [operation.op for operation in ordered.bindings[:2]] == ["generate", "index"]
        check(ordered)
        assert InPlace(ordered).of(operations(ordered, "scatter")[0]).taken == (True,)


def test_statements_stay_in_order() -> None:
    with build() as b:
        n, i = b.variable(i64, "n"), b.variable(i64, "i")
        a = b.array([n], lambda _: b.literal(1.0, f64))
        failure = Failure("index", "no", NOWHERE)
        put = b.scatter(True, [], [a], lambda: [i, b.literal(2.0, f64)])[0]
        b.require(b.primitive("less", b.index(put, [i]), b.literal(3.0, f64)), failure, [i])
        b.require(b.primitive("less", b.index(a, [i]), b.literal(3.0, f64)), failure, [n])
        block, _ = to_block([n, i], [put], b.scopes[0].statements)
    ordered = reads_first(block)
    check(ordered)
    requires = [operation.args[1:] for operation in ordered.bindings if operation.op == "require"]
    assert len(requires) == 2
    assert InPlace(ordered).of(operations(ordered, "scatter")[0]).taken == (True,)
