"""Programs as pictures: the operations of a term and the values that flow between them, as Graphviz source.

    print(az.draw(f))            # DOT source, for any tool that reads it
    az.draw(f).save("f.svg")     # a picture; a notebook shows it by itself

An operation is a node with its name, its arguments and the types of its results; parameters of blocks are rounder.
Each block is a frame around its operations, with the role it has in the operation it belongs to; what it gives goes to
that operation along a dashed line. Numbers and sizes stand in the labels. Where Graphviz' dot is installed the picture
is its work, else that of ``drawing/layout.py``.

The picture of a trace (``az.draw(az.trace(f)(x))``) is its *computational graph*: the inputs and the steps have the
values of that run in the place of types, and its frames hold the sub-traces of the constructs.
(van Hus: Maintaining parallelism in reverse-mode automatic differentiation on functional parallel array languages,
figure 1.)
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.program import instance_of
from ..core.terms import Block, Constant, Literal, Size
from ..core.types import all_dims
from ..core.verb import Function
from .drawing.picture import Edge, Frame, Node, Shape, source
from .drawing.svg import svg
from .pretty.expressions import RUNNING
from .pretty.names import Names
from .pretty.resolved import Argument, Bound, ResolvedBlock, ResolvedOperation, reduction_name, resolve
from .pretty.steps import input_text, steps, typed_text
from .simplify import simplify
from .trace import Trace


@dataclass(frozen=True)
class Drawing:
    """A picture; ``str`` gives its source for Graphviz."""

    picture: Frame

    @property
    def dot(self) -> str:
        """The source for Graphviz."""
        return source(self.picture)

    def __str__(self) -> str:
        return self.dot

    @property
    def svg(self) -> str:
        """The picture, laid out by Graphviz' program ``dot`` where that is installed."""
        program = shutil.which("dot")
        if program is None:
            return svg(self.picture)
        return subprocess.run([program, "-Tsvg"], input=self.dot, capture_output=True, text=True, check=True).stdout

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the source to a file that ends in ``.dot`` or ``.gv``, the picture to one that ends in ``.svg``.

        Raises ValueError for another ending.
        """
        path = Path(path)
        if path.suffix not in (".dot", ".gv", ".svg"):
            raise ValueError(f"a drawing is saved as .dot, .gv or .svg, not as {path.name!r}")
        path.write_text(self.svg if path.suffix == ".svg" else self.dot, encoding="utf-8")


def draw(program: Function[..., Any] | Block | Trace, *, simplified: bool = True) -> Drawing:
    """The term of a program as a picture, simplified first unless ``simplified=False``.

    A term is drawn as it is, a trace with its values.

    A program must have its types in its annotations; draw ``f.at(types...)`` for another choice.

    >>> import adze as az
    >>> @az.program
    ... def line(x: az.f64, slope: az.f64) -> az.f64:
    ...     return slope * x
    >>> print(az.draw(line))
    digraph "line" {
      node [shape=box, fontname="Helvetica"];
      n1 [label="x: f64", shape=ellipse];
      n2 [label="slope: f64", shape=ellipse];
      n3 [label="t1 = slope * x\\nf64"];
      n2 -> n3;
      n1 -> n3;
      n4 [label="return t1", shape=plaintext];
      n3 -> n4;
    }
    """
    if isinstance(program, Block):
        return Drawing(_Drawer("program").picture(resolve(program), program.names))
    if isinstance(program, Trace):
        return Drawing(_Drawer(program.name).graph(program))
    instance = instance_of(program)
    term = instance.term
    if simplified:
        term = simplify(term)
    return Drawing(_Drawer(instance.program.name).picture(resolve(term), instance.names))


class _Drawer:
    """Writes one program; names are as in printed programs."""

    def __init__(self, name: str) -> None:
        self.names = Names(set())
        self.frame = Frame("", name)  # the innermost one that is open
        self.nodes: dict[Argument, str] = {}
        self.values: dict[Argument, Any] = {}  # those that are known
        self.count = 0

    def picture(self, block: ResolvedBlock, names: Sequence[str]) -> Frame:
        for binder, hint in zip(block.binders, names, strict=True):
            binder.hint = hint
            self.names.taken.update(name for dim in all_dims(binder.type) for name in dim.names())
        self.contents(block, [], "return")
        return self.frame

    def graph(self, trace: Trace) -> Frame:
        """The picture of a trace."""
        block = steps(trace.block, self.names)
        self.values.update(zip(block.binders, trace.inputs, strict=True))
        for operation, values in zip(block.operations, trace.values, strict=True):
            self.values.update(zip(operation.results, values, strict=True))
        return self.picture(block, [binder.hint for binder in block.binders])

    def node(self, label: str, shape: Shape = "box") -> str:
        self.count += 1
        self.frame.items.append(Node(f"n{self.count}", label, shape))
        return f"n{self.count}"

    def edges(self, values: Sequence[Argument], target: str) -> None:
        for value in dict.fromkeys(values):
            if isinstance(value, Constant) and value not in self.nodes:
                self.nodes[value] = self.node(f"constant: {value.type}", "ellipse")
            if value in self.nodes:
                self.frame.items.append(Edge(self.nodes[value], target))

    def text(self, value: Argument) -> str:
        match value:
            case Bound(text=text):
                return text
            case Literal():
                return str(value.value)
            case Size(dim):
                return str(dim)
        return "constant"

    # Blocks and operations

    def contents(self, block: ResolvedBlock, extents: Sequence[str], give: str) -> str | None:
        """The nodes of a block; the last of them, which stands for what the block gives or does.

        Its first parameters are indices below these extents.
        """
        last = None
        for index, extent in zip(block.binders, extents, strict=False):
            self.nodes[index] = self.node(f"{self.names.bind_index(index)} < {extent}", "ellipse")
        for binder in block.binders[len(extents) :]:
            name = self.names.bind(binder)
            known = binder in self.values
            label = input_text(name, binder.type, self.values[binder]) if known else f"{name}: {binder.type}"
            self.nodes[binder] = self.node(label, "ellipse")
        for operation in block.operations:
            last = self.operation(operation)
        if block.results:
            last = self.node(f"{give} {', '.join(map(self.text, block.results))}", "plaintext")
            self.edges(block.results, last)
        return last

    def operation(self, operation: ResolvedOperation) -> str:
        ends = []
        name = reduction_name(operation)
        extents = [self.text(arg) for arg in operation.row.iterations(operation)]
        for k, block in enumerate(operation.blocks[:1] if name else operation.blocks):
            self.count += 1
            outer, self.frame = self.frame, Frame(f"cluster{self.count}", f"{operation.op}: {self.role(operation, k)}")
            outer.items.append(self.frame)
            with self.names.scope():
                ends.append(self.contents(block, extents if k == 0 else [], "gives"))
            self.frame = outer
        made = self.node(self.label(operation))
        self.edges(operation.args, made)
        self.frame.items += [Edge(end, made, dashed=True) for end in ends if end is not None]
        self.nodes.update(dict.fromkeys(operation.results, made))
        return made

    def role(self, operation: ResolvedOperation, k: int) -> str:
        """What a block is for."""
        return operation.row.names(operation.static, len(operation.blocks))[k] or f"branch {k + 1}"

    def indices(self, operation: ResolvedOperation) -> Sequence[str]:
        count = len(operation.row.iterations(operation))
        return [index.text for index in operation.blocks[0].binders[:count]] if count else []

    def label(self, operation: ResolvedOperation) -> str:
        args = [self.text(arg) for arg in operation.args]
        extents = operation.row.extents
        if extents is not None:
            places = extents(operation.static)
            args[places] = [f"{i} < {extent}" for i, extent in zip(self.indices(operation), args[places], strict=True)]
        names = [self.names.bind(result) for result in operation.results]
        match operation.op:
            case "primitive":
                primitive = operation.static[0]
                infix = primitive.infix if len(args) == 2 else None
                text = f" {infix} ".join(args) if infix else f"{primitive.name}({', '.join(args)})"
            case "index":
                text = f"{args[0]}[{', '.join(args[1:])}]"
            case "foreign" | "probe":
                name = operation.static[0] if operation.op == "probe" else operation.static[0].name
                text = f"{operation.op} {name}({', '.join(args)})"
            case "construct":
                text = f"{operation.static[1]}({', '.join(args)})"
            case "project" | "size":
                text = f"{operation.op}({args[0]}, {operation.static[0]})"
            case op:
                name = reduction_name(operation)
                row = operation.row
                word = RUNNING[name] if name and row.ordered else f"{op} {name}" if name and row.places else name or op
                shown = args[:-1] if name else args
                text = f"{word}({', '.join(shown)})" if shown else word
        first = f"{', '.join(names)} = {text}" if names else text
        made = ", ".join(map(self.made, operation.results))
        return f"{first}\n{made}" if made else first

    def made(self, result: Bound) -> str:
        """The value of a result, its type where that is not known."""
        return typed_text(result.type, self.values[result]) if result in self.values else str(result.type)
