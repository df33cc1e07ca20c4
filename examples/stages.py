"""A program on its way to machine code: what each stage makes of it.

    python examples/stages.py

``az.compile(f).loops`` and ``.llvm_ir`` show the last stages of what was compiled; here all of them are run one by
one, for a target that is the same on every machine, and so are the last stages on the way to an OpenCL device, which
need none. The stages are the compiler's own and may change.
"""

from __future__ import annotations

import re
from dataclasses import replace

import adze as az
from adze.backends import ir
from adze.backends.lowering import lower, with_roles
from adze.backends.memory.scratch import with_heaps
from adze.backends.opencl.kernels import split
from adze.backends.opencl.source import source
from adze.backends.pipeline import forms_of, loops_of
from adze.backends.schedule.nests.fusion import fused
from adze.backends.schedule.terms.distribution import schedule
from adze.backends.target import Target

# A core with 32 vector registers of 64 bytes, as those with AVX-512 have.
TARGET = Target(register_bytes=64, registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, parallel=True, multiply_add=True)

# A device whose threads come in groups of 256 that share memory, as many GPUs have them.
DEVICE = replace(TARGET, register_bytes=8, group=256, shared_bytes=47 << 10, threads=1 << 17, atomics=True)


def stages(program: az.Program) -> dict[str, str]:
    """The text of a program after each stage, by the stage's name."""
    term = program.at().term
    simplified = az.simplify(term)
    scheduled = schedule(simplified)
    lowered = fused(lower(scheduled, "program", TARGET))
    return {
        "written": az.pretty(term, simplified=False, style="loops"),
        "simplified": az.pretty(simplified, simplified=False, style="loops"),
        "scheduled": az.pretty(scheduled, simplified=False, style="loops"),
        "nests": ir.text(lowered.function),
        "loops": ir.text(with_roles(lowered).function),
    }


def loops(program: az.Program) -> str:
    """The loops of a program for the core, as they are compiled."""
    *_, form = forms_of(program.at(), TARGET)  # the one that serves all sizes
    return ir.text(loops_of(form, program.name, TARGET, checks=True).function)


def kernels(program: az.Program) -> tuple[str, str]:
    """A program for the device: its loops, in kernels and what the host does around them, and the OpenCL C of these."""
    *_, form = forms_of(program.at(), DEVICE)  # the one that serves all sizes
    lowered = loops_of(form, program.name, DEVICE, checks=True, deterministic=False)
    function = with_heaps(split(lowered.function), DEVICE.group)
    return ir.text(function), source(function, DEVICE.group).text


def excerpt(stage: str, first: str, last: str) -> str:
    """The lines from the first that holds one text to the next that holds another, with names numbered anew."""
    lines = stage.splitlines()
    start = next((k for k, line in enumerate(lines) if first in line), None)
    if start is None:
        raise ValueError(f"no line holds {first!r}")
    end = next((k for k in range(start, len(lines)) if last in lines[k]), None)
    if end is None:
        raise ValueError(f"no line after it holds {last!r}")
    margin = min(len(line) - len(line.lstrip()) for line in lines[start : end + 1])
    numbers: dict[str, str] = {}

    def renumbered(name: re.Match[str]) -> str:
        if name[0] not in numbers:
            same = sum(other.rstrip("0123456789") == name[1] for other in numbers)
            numbers[name[0]] = f"{name[1]}{same + 1}"
        return numbers[name[0]]

    name = re.compile(r"\b(?!f32\b|f64\b|i32\b|i64\b)([a-z_]\w*?)\d+\b(?!\()")
    return "\n".join(name.sub(renumbered, line[margin:]) for line in lines[start : end + 1])


@az.program
def softmax(scores: az.Array[az.f64, "n k"]) -> az.Array[az.f64, "n k"]:
    """Each row's exponentials, divided by their sum."""

    def row(s: az.Expr) -> az.Expr:
        weights = az.exp(s - az.max(s))
        return weights / az.sum(weights)

    return az.map(row, scores)


def main() -> None:
    loops, opencl = kernels(softmax)
    for name, stage in {**stages(softmax), "kernels": loops, "OpenCL C": opencl}.items():
        print(f"-- {name}\n{stage}\n")


if __name__ == "__main__":
    main()
