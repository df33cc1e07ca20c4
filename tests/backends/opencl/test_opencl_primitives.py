"""Expressions and updates in OpenCL C: as text, and on a device against NumPy's meaning.

Each kernel here holds all primitives of one type of operands, on all pairs of the corner values of
``test_primitives.py``: building a kernel is what takes long. Rows that are written in the language have no spelling;
they are made of these.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import pytest
from opencl_device import device
from sampling import some
from test_primitives import CANCELLING, Array, exact, operands, units

import adze as az
from adze.backends import ir
from adze.backends.opencl.devices import build_options, opened
from adze.backends.opencl.expressions import MEMORY, REGISTER, Expressions, c_name
from adze.core import primitive
from adze.core.language import Unsupported
from adze.core.primitive import MEANINGS, PRIMITIVES, Expansion, Primitive, lookup
from adze.core.types import SCALARS, Scalar, bool_, f32, f64, i32, i64

pytestmark = pytest.mark.unguarded

N, I, J = (ir.Variable(name, i64) for name in "nij")
ROWS = {name: row for name, row in PRIMITIVES.items() if not isinstance(row.llvm, Expansion)}


class Writer(Expressions):
    """``n``, ``i`` and ``j`` are sizes and counters."""

    def variable(self, name: str) -> str:
        return c_name(name)

    def element(self, buffer: ir.Buffer, indices: Sequence[str]) -> str:
        if len(indices) == 2:
            return f"{buffer.name}[{indices[0]} * {self.text(buffer.extents[1])} + {indices[1]}]"
        return f"{buffer.name}[{indices[0]}]"

    def is_index(self, name: str) -> bool:
        return name in ("n", "i", "j")


def apply(name: str, *arguments: ir.Expression) -> ir.Apply:
    row = lookup(name)
    return ir.Apply(row, arguments, row.result_type([argument.type for argument in arguments]))


def whole(value: int) -> ir.Constant:
    return ir.Constant(value, i64)


# As text

T, U = ir.Variable("t", i64), ir.Variable("u", i64)
X, Y, B = ir.Variable("x", f64), ir.Variable("y", f64), ir.Variable("b", bool_)
S = ir.Variable("s", f32)
K = ir.Variable("k", i32)
A = ir.Buffer("a", f64, (N, J))
V = ir.Buffer("v", i64, (N,))
FLAGS = ir.Buffer("flags", bool_, (N,))

TEXTS: list[tuple[ir.Expression, str]] = [
    # floating numbers: parentheses where C needs them
    (apply("add", X, apply("multiply", X, Y)), "x + x * y"),
    (apply("multiply", apply("add", X, Y), Y), "(x + y) * y"),
    (apply("subtract", X, apply("subtract", X, Y)), "x - (x - y)"),
    (apply("subtract", apply("subtract", X, Y), X), "x - y - x"),
    (apply("negative", apply("negative", X)), "-(-x)"),
    (apply("negative", ir.Constant(-1.0, f64)), "-(-1.0)"),
    (apply("subtract", X, ir.Constant(-1.0, f64)), "x - -1.0"),
    (apply("sqrt", apply("add", X, Y)), "sqrt(x + y)"),
    (apply("power", X, ir.Constant(0.5, f64)), "pow(x, 0.5)"),
    (apply("maximum", X, Y), "maximum_double(x, y)"),
    (ir.MultiplyAdd(S, ir.Constant(2.0, f32), ir.Constant(0.1, f32), f32), "fma(s, 2.0f, 0.1f)"),
    # truth
    (apply("logical_not", apply("less", X, Y)), "!(x < y)"),
    (apply("logical_and", apply("less", X, Y), apply("logical_not", B)), "x < y && !b"),
    (apply("logical_or", B, apply("logical_and", B, B)), "b || (b && b)"),
    (apply("equal", apply("less", X, Y), B), "(x < y) == b"),
    (ir.Select(B, X, ir.Select(apply("less", X, Y), Y, X, f64), f64), "b ? x : x < y ? y : x"),
    (apply("add", X, ir.Select(B, X, Y, f64)), "x + (b ? x : y)"),
    # sizes and counters do not overflow
    (apply("add", apply("multiply", I, N), apply("subtract", J, whole(1))), "i * n + (j - 1)"),
    (apply("multiply", whole(3), whole(4)), "3L * 4L"),
    (apply("floor_divide", I, whole(64)), "i / 64"),
    (apply("remainder", apply("add", I, J), whole(64)), "(i + j) % 64"),
    (apply("remainder", apply("subtract", I, J), whole(64)), "remainder_long(i - j, 64)"),
    (apply("floor_divide", I, N), "floor_divide_long(i, n)"),
    (apply("minimum", apply("subtract", N, I), whole(64)), "min(n - i, 64L)"),
    (apply("add", I, apply("i64", K)), "i + (long)k"),
    # other integers wrap around, and so may what is too large
    (apply("add", T, whole(-1)), "(long)((ulong)t + -1L)"),
    (apply("multiply", K, apply("add", K, ir.Constant(1, i32))), "(int)((uint)k * (int)((uint)k + 1))"),
    (apply("multiply", apply("multiply", I, N), J), "(long)((ulong)(i * n) * j)"),
    (apply("multiply", I, whole(6364136223846793005)), "(long)((ulong)i * 6364136223846793005L)"),
    (apply("less", apply("abs", T), whole(3)), "(long)abs(t) < 3"),
    (apply("bitwise_and", apply("bitwise_or", T, U), whole(255)), "(t | u) & 255"),
    (apply("right_shift", T, apply("add", I, whole(1))), "t >> min((ulong)(i + 1), (ulong)63)"),
    # conversions
    (apply("f64", apply("add", I, whole(1))), "(double)(i + 1)"),
    (apply("bool", X), "x != 0"),
    (apply("i32", T), "(int)t"),
    (apply("i32", X), "int_of_double(x)"),
    (apply("f32", B), "(float)b"),
    # loads
    (ir.Load(A, (I, apply("add", J, whole(1)))), "a[i * j + j + 1]"),
    (ir.Load(FLAGS, (I,)), "(bool)flags[i]"),
    (ir.Load(V, (ir.Load(V, (I,)),)), "v[v[i]]"),
    (ir.Load(A, (T, J), (0,)), "within(t, n) ? a[t * j + j] : 0.0"),
    (apply("add", X, ir.Load(A, (T, U), (0, 1))), "x + (within(t, n) & within(u, j) ? a[t * j + u] : 0.0)"),
    (ir.Load(FLAGS, (T,), (0,)), "within(t, n) ? (bool)flags[t] : false"),
    # constants
    (whole(-(2**63)), "LONG_MIN"),
    (ir.Constant(-(2**31), i32), "INT_MIN"),
    (whole(2**31), "2147483648L"),
    (ir.Constant(True, bool_), "true"),
    (ir.Constant(1, f32), "1.0f"),
    (ir.Constant(1e300, f32), "INFINITY"),
    (ir.Constant(-math.inf, f64), "(double)-INFINITY"),
    (ir.Constant(math.nan, f64), "(double)NAN"),
    (ir.Constant(-0.0, f64), "-0.0"),
    (ir.Constant(5e-324, f64), "5e-324"),
]


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text(expression: ir.Expression, text: str) -> None:
    assert Writer().text(expression) == text


def test_helpers_stand_once_and_before_what_calls_them() -> None:
    writer = Writer()
    assert writer.text(apply("floor_divide", T, apply("floor_divide", T, U)))
    assert writer.update(lookup("maximum"), f64, "global") == "atomic_maximum_double_global"
    assert writer.update(lookup("maximum"), f64, "global") == "atomic_maximum_double_global"
    assert [*writer.helpers] == [
        "floor_divide_long",
        "64-bit atomics",
        "maximum_double",
        "atomic_maximum_double_global",
    ]
    assert writer.helpers["floor_divide_long"] == (
        "long floor_divide_long(long a, long b) {\n"
        "  if (b == 0) return 0;\n"
        "  if (b == -1) return (long)(0 - (ulong)a);\n"
        "  return a / b - (a % b != 0 && (a < 0) != (b < 0));\n"
        "}"
    )


NAMES = [
    *(
        "x",
        "x1",
        "α",
        "αβ",
        "u3b1",
        "_0x3b1_",
        "_0x3b1",
        "_",
        "__",
        "__x",
        "2x",
        "a.b",
        "a_b",
        "a b",
        "x_0x",
        "ünïcode",
    ),
    *(
        "max",
        "max_",
        "max__",
        "half",
        "kernel",
        "long",
        "long_",
        "global",
        "float4",
        "M_PI",
        "sum_double",
        "sum_double_",
    ),
    *("t1", "own_t1", "get_global_id", "as_long", "INFINITY", "x_", "_x", "α_long"),
]


def test_names() -> None:
    found = [c_name(name) for name in NAMES]
    assert len(set(found)) == len(NAMES)
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) for name in found)
    assert not {"max", "half", "kernel", "long", "global", "float4", "M_PI", "__x", "sum_double"} & set(found)
    for name in ("x", "t1", "a_b", "x_", "own_t1", "ab", "u3b1"):
        assert c_name(name) == name


@pytest.fixture
def own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of primitives that the test may change."""
    monkeypatch.setattr(primitive, "PRIMITIVES", dict(PRIMITIVES))
    monkeypatch.setattr(primitive, "MEANINGS", dict(MEANINGS))


def new(**spelling: Any) -> Primitive:
    return az.primitive(
        "mine", arity=2, numpy=lambda a, b: a + b, derivative=lambda y, a, b: (lambda t: t, None), **spelling
    )


@pytest.mark.usefixtures("own_table")
def test_a_function_for_each_combination_of_types() -> None:
    row = new(llvm=az.Libm("ours"), opencl="$0 + $1 * $1", operands=("float", "int"), result=f64, mixed=True)
    writer = Writer()
    assert writer.text(ir.Apply(row, (X, K), f64)) == "mine_double_int(x, k)"
    assert writer.text(ir.Apply(row, (X, T), f64)) == "mine_double_long(x, t)"
    assert "double mine_double_int(double a, int b) {" in writer.helpers["mine_double_int"]


@pytest.mark.usefixtures("own_table")
def test_primitives_of_the_user() -> None:
    instructions = az.Instructions({"float": "%r = fadd $t $0, $1"})
    assert Writer().text(ir.Apply(new(llvm=az.Libm("fdim")), (X, Y), f64)) == "fdim(x, y)"
    assert Writer().text(ir.Apply(new(llvm=az.Libm("ours"), opencl="$0 + $1"), (X, Y), f64)) == "x + y"
    writer = Writer()
    row = new(llvm=instructions, opencl={"float": "if ($0 < 0) return $1;\nreturn ($t)2 * $0;"})
    assert writer.text(ir.Apply(row, (S, S), f32)) == "mine_float(s, s)"
    assert [*writer.helpers.values()] == [
        "float mine_float(float a, float b) {\n  if (a < 0) return b;\n  return (float)2 * a;\n}"
    ]
    for llvm in (instructions, az.Libm("ours")):
        with pytest.raises(Unsupported, match=r'mine has no spelling in OpenCL C for f64 .*opencl="mine\(\$0, \$1\)"'):
            Writer().text(ir.Apply(new(llvm=llvm), (X, Y), f64))


# On a device


def build(source: str) -> Any:
    import pyopencl

    program = pyopencl.Program(opened(device()).context, "#pragma OPENCL FP_CONTRACT OFF\n" + source)
    return program.build([*build_options(device()), "-w"])


def run(kernel: Any, threads: int, group: int | None, *arguments: Any) -> None:
    """Run a kernel on arrays, which it may change, and numbers."""
    import pyopencl

    on = opened(device())
    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.COPY_HOST_PTR
    memory = [pyopencl.Buffer(on.context, flags, hostbuf=x) if isinstance(x, np.ndarray) else x for x in arguments]
    kernel(on.queue, (threads,), group and (group,), *memory)
    for array, place in zip(arguments, memory):
        if isinstance(array, np.ndarray):
            pyopencl.enqueue_copy(on.queue, array, place)


def mapped(scalar: Scalar, writer: Writer, kernel: str, rows: Sequence[Primitive]) -> str:
    """A kernel that applies rows to two arrays; the results of each type lie behind each other."""
    x, y = ir.Buffer("x", scalar, (N,)), ir.Buffer("y", scalar, (N,))
    count = dict.fromkeys(SCALARS.values(), 0)
    lines = []
    for row in rows:
        value = apply(row.name, *[ir.Load(each, (I,)) for each in (x, y)][: row.arity])
        lines.append(f"  out_{value.type}[{count[value.type]} * n + i] = {writer.text(value)};")
        count[value.type] += 1
    parameters = [f"global const {MEMORY[scalar]} *x, global const {MEMORY[scalar]} *y, long n"]
    parameters += [f"global {MEMORY[each]} *out_{each}" for each in SCALARS.values()]
    return "\n".join([f"kernel void {kernel}({', '.join(parameters)}) {{", "  long i = get_global_id(0);", *lines, "}"])


def rows_of(scalar: Scalar) -> list[Primitive]:
    return [row for row in ROWS.values() if scalar.kind in row.operands]


@cache
def program() -> Any:
    writer = Writer()
    kernels = [mapped(scalar, writer, f"map_{scalar}", rows_of(scalar)) for scalar in SCALARS.values()]
    return build("\n".join([*writer.helpers.values(), *kernels]))


@cache
def computed(scalar: Scalar) -> dict[str, tuple[list[Array], Array]]:
    """The operands and the results of all rows of a type, as the device has them."""
    x, y = operands(lookup("equal"), scalar)
    rows = rows_of(scalar)
    results = {each: np.zeros((len(rows), len(x)), each.dtype) for each in SCALARS.values()}
    run(getattr(program(), f"map_{scalar}"), len(x), None, x, y, np.int64(len(x)), *results.values())
    each = {scalar: iter(array) for scalar, array in results.items()}
    return {row.name: ([x, y][: row.arity], next(each[row.result_type([scalar] * row.arity)])) for row in rows}


CASES = [(row.name, scalar.name) for scalar in SCALARS.values() for row in rows_of(scalar)]


@pytest.mark.rest
@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize(("name", "type"), CASES)
def test_value(name: str, type: str) -> None:
    row, scalar = ROWS[name], SCALARS[type]
    arguments, found = computed(scalar)[name]
    wanted = np.asarray(row(*arguments)).astype(found.dtype)
    worst = units(found, wanted, 1.0 if name in CANCELLING else 0.0)
    assert worst.max() <= (0 if exact(row) else 8), [x[worst.argmax()] for x in (*arguments, found, wanted)]
    if exact(row) and name not in ("minimum", "maximum"):
        assert (np.signbit(found) == np.signbit(wanted))[wanted == wanted].all()


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_zeros_have_an_order(type: str) -> None:
    """As in the instructions of LLVM: NumPy leaves it open."""
    for name, least in (("minimum", True), ("maximum", False)):
        (x, y), found = computed(SCALARS[type])[name]
        zeros = (x == 0) & (y == 0)
        signs = np.signbit(x) | np.signbit(y) if least else np.signbit(x) & np.signbit(y)
        assert zeros.any() and (np.signbit(found) == signs)[zeros].all()


# Expressions of expressions

OTHERS = [ir.Variable(f"v_{each}", each) for each in SCALARS.values() if each.kind == "int"]  # of every type one
VARIABLES = [X, Y, S, T, U, K, B, I, N, *OTHERS]
EXACT = [row for row in ROWS.values() if exact(row) and row.name not in ("minimum", "maximum")]


def random_expression(numbers: random.Random, type: Scalar, depth: int) -> ir.Expression:
    """An expression of a type, of counters, constants, and variables whose values the device does not know."""
    if depth == 0 or numbers.random() < 0.1:
        fitting = [each for each in VARIABLES if each.type == type]
        whole = numbers.randint(-3 if type.signed else 0, 70)
        constant = {"float": numbers.choice([-1.5, 0.25]), "int": whole, "bool": True}[type.kind]
        return numbers.choice(fitting) if numbers.random() < 0.8 else ir.Constant(constant, type)
    if numbers.random() < 0.1:
        parts = [random_expression(numbers, each, depth - 1) for each in (bool_, type, type)]
        return ir.Select(parts[0], parts[1], parts[2], type)
    while True:
        row, operand = numbers.choice(EXACT), numbers.choice([*SCALARS.values()])
        if operand.kind in row.operands and row.result_type([operand] * row.arity) == type:
            return ir.Apply(row, tuple(random_expression(numbers, operand, depth - 1) for _ in range(row.arity)), type)


def meaning(expression: ir.Expression, values: dict[str, Array]) -> Any:
    match expression:
        case ir.Constant(value, type):
            return type.dtype.type(value)
        case ir.Variable(name):
            return values[name]
        case ir.Select(test, then, orelse):
            return np.where(*[meaning(each, values) for each in (test, then, orelse)])
        case ir.Apply(row, arguments, type):
            return np.asarray(row(*[meaning(each, values) for each in arguments])).astype(type.dtype)
    raise AssertionError(expression)


@pytest.mark.rest
@pytest.mark.usefixtures("opencl")
def test_random_expressions() -> None:
    """Whatever stands in whatever: the parentheses are where they must be."""
    numbers, points = random.Random(7), np.random.default_rng(7)
    types = [scalar for scalar in SCALARS.values() for _ in range(30)]
    expressions = [random_expression(numbers, type, 4) for type in types]
    count = 64
    values: dict[str, Array] = {
        **{each.name: (points.integers(-12, 12, count) / 4).astype(each.type.dtype) for each in (X, Y, S)},
        **{each.name: points.integers(-70, 70, count).astype(each.type.dtype) for each in (T, U, K, *OTHERS)},
        "b": points.random(count) < 0.5,
        "i": np.arange(count),
        "n": np.full(count, count),
    }
    writer = Writer()
    lines = [f"  out_{k}[i] = {writer.text(each)};" for k, each in enumerate(expressions)]
    texts = [*writer.helpers.values()]
    found = [np.zeros(count, type.dtype) for type in types]
    for start in range(0, len(types), 30):  # devices take only so many arguments
        parameters = [f"global const {MEMORY[each.type]} *all_{each.name}" for each in VARIABLES]
        parameters += [f"global {MEMORY[types[k]]} *out_{k}" for k in range(start, start + 30)]
        variables = [f"  {REGISTER[each.type]} {each.name} = all_{each.name}[get_global_id(0)];" for each in VARIABLES]
        head = f"kernel void part_{start}({', '.join(parameters)}) {{"
        texts.append("\n".join([head, *variables, *lines[start : start + 30], "}"]))
    program = build("\n".join(texts))
    for start in range(0, len(types), 30):
        arguments = [values[each.name] for each in VARIABLES]
        run(getattr(program, f"part_{start}"), count, None, *arguments, *found[start : start + 30])
    for expression, line, result in zip(expressions, lines, found):
        with np.errstate(all="ignore"):
            wanted = np.broadcast_to(meaning(expression, values), count)
        assert ((result == wanted) | ((result != result) & (wanted != wanted))).all(), line


@pytest.mark.usefixtures("opencl")
def test_loads_outside_of_a_buffer_do_not_happen() -> None:
    """Along the axes that are guarded there are zeros; the indices are computed from elements."""
    writer = Writer()
    x, flags, at = ir.Buffer("x", f64, (N,)), ir.Buffer("flags", bool_, (N,)), ir.Buffer("at", i64, (N,))
    place = apply("add", ir.Load(at, (I,)), whole(1))
    element = ir.MultiplyAdd(ir.Load(x, (place,), (0,)), ir.Constant(3.0, f64), ir.Constant(3.0, f64), f64)
    text = writer.text(ir.Select(ir.Load(flags, (place,), (0,)), element, ir.Constant(-1.0, f64), f64))
    source = f"""
        {writer.helpers["within"]}
        kernel void load(global const double *x, global const uchar *flags, global const long *at, long n,
                         global double *out) {{
          long i = get_global_id(0);
          out[i] = {text};
        }}"""
    values = np.arange(1.0, 8.0)
    flagged = np.array([True, False, True, True, False, True, True])
    indices = np.array([-(2**63), -2, -1, 0, 5, 6, 2**62], np.int64)
    out = np.zeros(7)
    run(build(source).load, 7, None, values, flagged, indices, np.int64(7), out)
    inside = [0 <= k + 1 < 7 for k in indices.tolist()]
    wanted = [values[k + 1] * 3 + 3 if ok and flagged[k + 1] else -1.0 for k, ok in zip(indices.tolist(), inside)]
    assert out.tolist() == wanted


# Updates by many threads

COMBINED = {
    "float": ("add", "multiply", "minimum", "maximum"),
    "int": ("add", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor"),
    "bool": ("logical_and", "logical_or", "logical_xor"),
}
PLACES, THREADS, GROUP = 5, 4096, 16


def updating(scalar: Scalar) -> str:
    """A kernel that combines the value of each thread into one of a few places, and into one of its group's."""
    writer = Writer()
    type, names = MEMORY[scalar], COMBINED[scalar.kind]
    near, far = ([writer.update(lookup(name), scalar, space) for name in names] for space in ("local", "global"))
    lines = []
    for k, (to_group, to_all) in enumerate(zip(near, far)):
        place = f"out[{k * PLACES} + i % {PLACES}]"
        own = f"own[{k * PLACES} + i % {PLACES}]"
        lines += [f"  {to_all}(&{place}, value[i]);", f"  {to_group}(&{own}, value[i]);"]
    count = PLACES * len(names)
    mine = f"for (int k = get_local_id(0); k < {count}; k += {GROUP})"
    return "\n".join([
        *writer.helpers.values(),
        f"kernel void update(global const {type} *value, global const {type} *start, global {type} *out,",
        f"                   global {type} *groups) {{",
        f"  local {type} own[{(count + 3) // 4 * 4}];",
        "  long i = get_global_id(0);",
        f"  {mine} own[k] = start[k];",
        "  barrier(CLK_LOCAL_MEM_FENCE);",
        *lines,
        "  barrier(CLK_LOCAL_MEM_FENCE);",
        f"  {mine} groups[get_group_id(0) * {count} + k] = own[k];",
        "}",
    ])  # fmt: skip


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("type", SCALARS)
def test_updates(type: str) -> None:
    """The order is open, so values are such that it does not matter: each step is exact."""
    scalar, names = SCALARS[type], COMBINED[SCALARS[type].kind]
    numbers = np.random.default_rng(3)
    if scalar.kind == "bool":
        value = numbers.random(THREADS) < 0.3
    elif scalar.kind == "int":
        value = numbers.integers(scalar.least, scalar.most, THREADS, dtype=scalar.dtype) | scalar.dtype.type(1)
    else:
        value = numbers.choice([1.0, -1.0, 2.0, 0.5], THREADS).astype(scalar.dtype)
    start = np.full((len(names), PLACES), True if scalar.kind == "bool" else 3, scalar.dtype)
    out = np.append(start.ravel(), start.ravel()[:1])  # an even number: whole words
    groups = np.zeros((THREADS // GROUP, len(names), PLACES), scalar.dtype)
    run(build(updating(scalar)).update, THREADS, GROUP, value, start, out, groups)
    out = out[:-1].reshape(start.shape)
    place = np.arange(THREADS) % PLACES
    with np.errstate(all="ignore"):
        for k, name in enumerate(names):
            combine = lookup(name).numpy
            for p in range(PLACES):
                assert out[k, p] == reduce(combine, value[place == p], start[k, p]), name
                for g, found in enumerate(groups[:3]):
                    own = slice(g * GROUP, (g + 1) * GROUP)
                    assert found[k, p] == reduce(combine, value[own][place[own] == p], start[k, p]), name


@pytest.mark.rest
@pytest.mark.parametrize("type", some(["u16", "bool", "f32", "i64"]))
def test_updates_are_no_races(oclgrind: Callable[[str], str], type: str) -> None:
    assert oclgrind(f"""
        import test_opencl_primitives as t
        t.THREADS = 32
        t.test_updates("{type}")
        print("the same")
    """).endswith("the same\n")
