"""Debug locations: notes become locations, LLVM keeps them, and what is read back are the lines of the loops."""

import re
from typing import Any

import numpy as np
import pytest
from trace_programs import RECURSIVE

import adze as az
from adze.backends import ir
from adze.backends.compiled import Compiled
from adze.backends.llvm.locations import located, note, read_assembly, read_module, without_notes
from adze.backends.llvm.text import Module
from adze.backends.llvm.version import Version

FUNCTION = """define i64 @f(i64 %x) noinline {
entry:
  ; loops of scalars ; line 3
  %y = add i64 %x, 1 ; line 3
  call void @g()
  %z = mul i64 %y, %y ; line 4
  ret i64 %z
}"""


def test_notes_become_locations() -> None:
    module = Module(located=True)
    module.declare("g", "declare void @g()")
    module.define("f", FUNCTION)
    text = str(module)
    assert re.search(r"define i64 @f\(i64 %x\) noinline !dbg !\d+ \{", text)
    assert "  ; loops of scalars\n" in text and "; line" not in text
    assert [place for _, place in read_module(text) if place] == [3, 4]
    (called,) = re.findall(r"call void @g\(\), !dbg (!\d+)", text)
    assert f"{called} = !DILocation(line: 0" in text
    assert str(Module()) == str(Module(located=False)) and note(0) == ""
    assert without_notes(FUNCTION) == re.sub(r" ; line \d", "", FUNCTION)


def test_a_function_without_notes_stays_as_it_is() -> None:
    text = without_notes(FUNCTION)
    found, _ = located({"f": text}, Module(located=True))
    assert found == {"f": text}


def test_assembly_is_read_without_directives() -> None:
    text = "\n".join(
        [
            *('\t.file\t"loops"', "f:", ".Lfunc_begin0:", "\t.loc\t1 3 0", "\taddq\t$1, %rdi", ".Ltmp0:"),
            *("\tmulq\t%rdi", "\t.loc\t1 0 0", "\tretq", ".Lfunc_end0:", ""),
        ]
    )
    assert read_assembly(text) == [("f:", 0), ("\taddq\t$1, %rdi", 3), ("\tmulq\t%rdi", 3), ("\tretq", 0)]


def version_of(compiled: Compiled) -> tuple[Version, int]:
    stage = compiled.stage()
    assert isinstance(stage.version, Version)
    return stage.version, stage.number


def instructions(lines: list[str]) -> list[str]:
    """The instructions of assembly, without directives, labels and remarks."""
    kept = [line.split("#")[0].strip() for line in lines if line.startswith("\t") and not line.startswith("\t.")]
    return [line for line in kept if line]


def product(a: az.Array[az.f64, "n m"], b: az.Array[az.f64, "m k"]) -> az.Array[az.f64, "n k"]:
    return a @ b


def ordered(x: az.Array[az.f64, "n"]) -> Any:
    return az.sort(x), az.cumsum(x), az.fori_loop(0, x.shape[0], lambda i, s: az.sin(s) + x[i], 0.0)


@pytest.mark.unguarded
@pytest.mark.parametrize("program", [product, ordered, RECURSIVE[0].program], ids=lambda program: program.__name__)
def test_locations_change_no_instruction(program: Any) -> None:
    """Nor do programs that nobody looks at have any."""
    compiled = az.compile(program)
    version, number = version_of(compiled)
    module, assembly = version.located(number)
    assert instructions([line for line, _ in assembly]) == instructions(compiled.assembly.split("\n"))
    assert "!dbg" not in compiled.llvm_ir and ".loc" not in compiled.assembly
    statements = [statement for _, statement in ir.lines(version.lowered(number).function)]
    places = {place for _, place in (*module, *assembly) if place}
    assert places and all(statements[place - 1] is not None for place in places)


@pytest.mark.unguarded
def test_a_store_is_on_the_line_that_stores() -> None:
    @az.program
    def doubled(x: az.Array[az.f64, "n"]) -> az.Array[az.f64, "n"]:
        return 2.0 * x

    version, number = version_of(az.compile(doubled))
    module, _ = version.located(number)
    loops = [text for text, _ in ir.lines(version.lowered(number).function)]
    stored = {loops[place - 1].strip() for line, place in module if " store <" in line and place}
    assert stored and all(re.match(r"result\d+\[i\d+\] = ", text) for text in stored)
    np.testing.assert_array_equal(az.compile(doubled)(np.ones(3)), [2.0, 2.0, 2.0])
