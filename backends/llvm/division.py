"""Whole-number division, towards minus infinity, and by 0 to 0.

Of two numbers it is some fifteen instructions, and a function where code runs once. Along lanes it is done by floating
numbers, since processors divide no vectors of integers:

    -7 // 2  =  floor(-7.0 / 2.0)  =  -4          -7 % 2  =  -7 - 2 * -4  =  1

Below 2^51 in magnitude, integers are floating numbers, and the floor of their quotient is exact although the quotient
is rounded: where it is not whole, a / b is at least 1 / b from the next whole number, and rounding moves it by less
than a / b * 2^-53 < 1 / (4 b). Where a lane has a larger number, all are divided one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.types import i64
from .text import Body, Module, register_type

DIVISIONS = ("floor_divide", "remainder")

_LIMIT = 1 << 51
_SHIFT = 0x4338000000000000  # 1.5 * 2^52, to which an integer below the limit is added in the last places


def scalar_division(module: Module, primitive: str, attributes: str, emit: Callable[[Body], str]) -> str:
    """The function of a module that divides numbers ``%a`` and ``%b``, as ``emit`` does."""
    name = f"{primitive}.i64"
    if not module.defines(name):
        body = Body()
        body.line(f"ret i64 {emit(body)}")
        head = f"define internal i64 @{name}(i64 %a, i64 %b) noinline memory(none) {attributes}"
        module.define(name, f"{head} {{\n{body}\n}}")
    return name


def vector_division(
    module: Module, primitive: str, lanes: int, attributes: str, one_by_one: Callable[[Body], str]
) -> str:
    """The function of a module that divides vectors ``%a`` and ``%b``; ``one_by_one`` emits what it does for any."""
    name, type, real = f"{primitive}.v{lanes}i64", register_type(i64, lanes), f"<{lanes} x double>"
    if module.defines(name):
        return name
    body = Body()
    value = body.value

    def splat(number: int) -> str:
        return f"splat (i64 {number})"

    def small(register: str) -> str:
        return value(f"icmp ult {type} {value(f'add {type} {register}, {splat(_LIMIT)}')}, {splat(2 * _LIMIT)}")

    def floating(register: str) -> str:
        shifted = value(f"bitcast {type} {value(f'add {type} {register}, {splat(_SHIFT)}')} to {real}")
        return value(f"fsub {real} {shifted}, {shift}")

    shift = f"splat (double 0x{_SHIFT:016X})"
    mask = f"<{lanes} x i1>"
    zero = value(f"icmp eq {type} %b, zeroinitializer")
    divisor = value(f"select {mask} {zero}, {type} {splat(1)}, {type} %b")
    both = value(f"and {mask} {small('%a')}, {small(divisor)}")
    every = value(f"call i1 @llvm.vector.reduce.and.v{lanes}i1({mask} {both})")
    body.line(f"br i1 {every}, label %small, label %any")
    body.label("small")
    quotient = value(f"fdiv {real} {floating('%a')}, {floating(divisor)}")
    floor = value(f"call {real} @llvm.floor.v{lanes}f64({real} {quotient})")
    shifted = value(f"bitcast {real} {value(f'fadd {real} {floor}, {shift}')} to {type}")
    found = value(f"sub {type} {shifted}, {splat(_SHIFT)}")
    if primitive == "remainder":
        found = value(f"sub {type} %a, {value(f'mul {type} {found}, {divisor}')}")
    found = value(f"select {mask} {zero}, {type} zeroinitializer, {type} {found}")
    body.line(f"ret {type} {found}")
    body.label("any")
    body.line(f"ret {type} {one_by_one(body)}")
    head = f"define internal {type} @{name}({type} %a, {type} %b) alwaysinline memory(none) {attributes}"
    module.define(name, f"{head} {{\n{body}\n}}")
    return name
