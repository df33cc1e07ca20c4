"""The loop IR: imperative, target-neutral, scalars only.

A function reads and writes *buffers* (row-major arrays of scalars) inside loops of a *kind*. What a loop's kind
means is the target's business; what it allows is fixed here:

* ``sequential``: in order.
* ``parallel``: iterations are independent and may run on several threads; ``grain`` is the least number of
  iterations worth a thread's attention. Not nested inside ``parallel``, ``lanes`` or ``jam``; but a parallel loop
  that is the whole body of a parallel loop belongs to it: both are one *grid*, its last loop the fastest to move.
* ``lanes``: iterations are independent and run side by side as the lanes of vectors, ``factor`` at a time: every
  scalar that varies with the loop variable becomes a vector, what does not vary stays a scalar. ``reductions``
  name mutable variables of the surrounding scope that the body combines into.
* ``jam``: iterations are independent and are unrolled ``factor`` at a time *in lockstep*: each scalar that varies
  with the variable becomes ``factor`` copies, and inner loops run once for all copies (unroll-and-jam).

Inside ``lanes`` and ``jam``, extents of loops and tests of ``If`` do not vary with their variables. A value does
not depend on whether its iteration ran in a full strip, a tail or a copy: the same operations compute it.

On a target with *groups* (``Target.group``) the lanes of a strip are threads of their own. A parallel loop without
lanes inside runs one iteration a thread; one with lanes inside runs one a group, whose threads all run what stands
outside of the lanes, alike, and share what stands inside. So the factor of lanes is the size of a group, there is no
jam, and lanes may hold what varies: loops, branches, requirements, temporaries. Threads of a group share the buffers
that the parallel loop allocates, those that are ``shared`` in fast memory of their own; what a lane wrote others may
read after the end of the loop, or after a ``Barrier`` inside of it. ``Update`` is for places that iterations share.

One worked example, a matrix product whose columns are lanes and whose rows are jammed::

    parallel i0 < ...
      jam i < n by 4
        lanes j < m by 32
          var t = 0.0
          for k < l
            t = fma(a[i, k], b[k, j], t)
          c[i, j] = t
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeVar

from ...core.primitive import Primitive
from .expressions import Apply, Buffer, Constant, Expression, Variable, node

Kind = Literal["sequential", "parallel", "lanes", "jam"]
InvokeKind = Literal["procedure", "jump", "cell", "tag", "fields", "place", "put", "take", "give"]


@node
class Let:
    """An immutable scalar, visible to the end of its block."""

    name: str
    value: Expression


@node
class Declare:
    """A mutable scalar, visible to the end of its block."""

    name: str
    initial: Expression


@node
class Assign:
    name: str
    value: Expression


@node
class Store:
    """Outside the buffer, along the axes that are ``guarded``, it does nothing."""

    buffer: Buffer
    indices: tuple[Expression, ...]
    value: Expression
    guarded: tuple[int, ...] = ()


@node
class Update:
    """Combine a value into an element, by an associative and commutative primitive, at once.

    Iterations of parallel loops and lanes may update the same place, in any order; none reads it. Outside the buffer,
    along the axes that are ``guarded``, it does nothing. Only for targets with atomics.
    """

    buffer: Buffer
    indices: tuple[Expression, ...]
    primitive: Primitive
    value: Expression
    guarded: tuple[int, ...] = ()


@node
class Prefetch:
    """Tell the memory that an element will soon be read, or written; the indices need not be in range."""

    buffer: Buffer
    indices: tuple[Expression, ...]
    write: bool = False


@node
class Barrier:
    """All lanes wait for each other; then each sees what the others wrote. Only for targets with groups.

    It stands inside lanes whose extent is their factor, in no branch or loop that varies with the lane.
    """


@node
class Allocate:
    """A temporary buffer, uninitialised, live to the end of its block; inside ``parallel``, one a thread (or group).

    Its extents depend on sizes of the function, or on immutable scalars bound before. Not inside ``lanes`` or ``jam``
    of vectors. One that is ``shared`` is in the memory of a group: it stands inside ``parallel``, outside of lanes,
    and its extents depend on sizes alone.
    """

    buffer: Buffer
    shared: bool = False


@node
class Reduction:
    """A variable that a ``lanes`` loop combines into, by an associative and commutative primitive."""

    name: str
    primitive: Primitive
    neutral: Constant

    def combined(self, value: Expression) -> Assign:
        """The statement that combines a value into it, which mentions the variable whatever is known of the value."""
        type = self.neutral.type
        return Assign(self.name, Apply(self.primitive, (Variable(self.name, type), value), type))


@node
class For:
    variable: str  # an i64
    extent: Expression
    kind: Kind
    body: Block
    factor: int = 1
    grain: Expression | None = None
    reductions: tuple[Reduction, ...] = ()


@node
class If:
    test: Expression
    then: Block
    orelse: Block


@node
class While:
    """The head, and as long as the test then holds, the body and the head again. Not inside jam.

    Inside lanes of vectors it goes on as long as the test holds for one of the lanes that run side by side: the body
    leaves variables as they are where it does not.
    What the head binds is visible in the test and in the body. When a requirement inside failed, it ends.
    """

    head: Block
    test: Expression
    body: Block


@node
class Require:
    """Record the failure of site ``site`` with some integers unless the test holds. Not inside vectors or jam."""

    test: Expression
    site: int
    values: tuple[Expression, ...]


@node
class Call:
    """Have a function that is written elsewhere run, by its number, and bind whether it did: 0, or what is not.

    All that is known of it is which buffers it reads and which it writes, all of them from end to end. It is told the
    ``iteration`` that it is part of. Not inside lanes or jam, nor on a device.
    """

    name: str  # an i64
    number: int
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    iteration: tuple[Expression, ...] = ()  # the indices of the loops of the program around it, from the outside in
    symbol: str = ""  # of the function, where it is one of C: then the name is bound to what it returns


@node
class Invoke(Call):
    """A call whose values travel in registers: of a procedure, or of what cells are made and read with, by its kind.

    ``name`` is bound to an i64, ``binds`` to scalars, and buffers are entered at the addresses that it finds:

    * ``procedure``: procedure ``number`` with ``values`` and ``reads``; it gives ``binds`` and fills ``writes``. One
      that gives nothing writes ``binds`` to words: it takes their addresses, too, and who calls it makes room for them.
    * ``jump``: the same, as the last thing that a procedure does: what it gives, or writes, the procedure does.
    * ``cell``: ``name`` is the address of a new cell of the variant ``number``, with ``values`` and ``reads``, whose
      elements are copied unless they last as long as the cell.
    * ``tag``: ``name`` is the variant of the cell at the address that is its value.
    * ``fields``: ``binds`` and ``enters`` are fields of the cell at the address that is its value.
    * ``place``: ``name`` is the address of a field of the cell at the address that is its value.
    * ``put``: the word at the address that is its first value becomes the second.
    * ``take``: the first thing in a procedure: it binds and enters what it is given. ``number`` is the site that fails
      when procedures have called each other too deep; ``values`` are what it gives where something has failed.
    * ``give``: the last thing in a procedure, or in its branches: ``values`` are what it gives.

    ``places`` are the words of a cell for values, then buffers, counted from its first field.
    """

    kind: InvokeKind = "procedure"
    values: tuple[Expression, ...] = ()
    binds: tuple[Variable, ...] = ()
    enters: tuple[Buffer, ...] = ()
    places: tuple[int, ...] = ()


@node
class Fork:
    """Calls of procedures, two or more, that may run side by side; what they bind is visible behind it.

    None mentions what another one binds or writes. If several fail, the first of them in the order here has failed.
    """

    body: tuple[Invoke, ...]


@node
class Return:
    """Hand a temporary of the top level to the caller, as the returned array of a number. Its last mention."""

    number: int
    buffer: Buffer


@node
class Axis:
    """One of the axes of a nest, which counts from 0."""

    variable: Variable
    extent: Expression


@node
class Strip:
    """A loop over blocks of rows: the names of what changes in it, the rows of a block, and how many these are at most.

    Blocks have as many but for the last one, and these fill lanes and tiles.
    """

    varying: frozenset[str]
    rows: Variable
    most: Expression


@node
class Nest:
    """The body for all points of some axes, in any order. Lowering writes it; a schedule makes loops of it.

    Which axis is for threads, which for lanes, and in which order the others run, is not decided yet, nor is the layout
    of the temporaries that it *fills*: allocated just before, written by this nest alone. No point reads what another
    one writes; where points *meet* in what they add to, the sum of all is meant. Variables that it *combines* into are
    declared before, and only combined into: by what of all, in which order, is not decided yet either. In the body
    stand what a point computes and the nests that are private to it.
    """

    axes: tuple[Axis, ...]
    body: Block
    outermost: bool  # no other nest or parallel loop is around it: threads may share it out
    fills: tuple[Buffer, ...] = ()
    meets: bool = False
    read: Mapping[tuple[str, str], int] = field(default_factory=dict)  # where it is read: least i - j of variables
    alone: Expression | None = None  # when one thread is faster than several, as far as memory decides
    combines: tuple[Reduction, ...] = ()
    strip: Strip | None = None  # the loop over blocks of rows around it, if it runs block by block

    def in_order(self) -> Block:
        """What it means: plain loops, one inside the other."""
        return nested(self.axes, self.body)


@node
class Kernel:
    """What a device with memory of its own runs at once; the rest of its function is run by the host.

    The host computes what needs no buffer; a load there brings one number back from the device. See
    ``opencl/kernels.py``.
    """

    name: str
    body: Block


S = TypeVar("S")

Statement = (
    Let
    | Declare
    | Assign
    | Store
    | Update
    | Prefetch
    | Barrier
    | Allocate
    | For
    | If
    | While
    | Require
    | Call
    | Fork
    | Return
    | Nest
    | Kernel
)
Block = tuple[Statement, ...]


@node
class Function:
    """``sizes`` are i64 variables; ``arguments`` are only read; results are written first; all are distinct memory.

    ``returned`` is the number of arrays that the function makes room for itself, and hands over by ``Return``: those
    whose size nobody knows before the run. ``procedures`` are called by it and by each other, by their numbers: each
    has the same sizes, and begins with an ``Invoke`` that takes what it is given; its arguments are constants.
    """

    name: str
    sizes: tuple[str, ...]
    arguments: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    body: Block
    returned: int = 0
    procedures: tuple[Function, ...] = ()


def nested(axes: Sequence[Axis], body: Block, kind: Kind = "sequential") -> Block:
    """Perfectly nested loops."""
    for axis in reversed(axes):
        body = (For(axis.variable.name, axis.extent, kind, body),)
    return body


def unravelled(number: Expression, axes: Sequence[Axis], fresh: Callable[[str], str] | None = None) -> list[Let]:
    """Where each axis stands at a number of all their points, the last axis the fastest (NumPy's ``unravel_index``).

    Quotients have names where ``fresh`` gives these.
    """
    made: list[Let] = []
    for axis in reversed(axes[1:]):
        made.append(Let(axis.variable.name, number % axis.extent))
        number = number // axis.extent
        if fresh is not None:
            made.append(Let(fresh("number"), number))
            number = Variable(made[-1].name)
    return [*made, Let(axes[0].variable.name, number)]


# What holds blocks: of all that is walked through, most does not
WITH_BLOCKS = frozenset((For, Nest, If, While, Kernel, Fork))


def walk(block: Block) -> Iterator[Statement]:
    """Every statement of a block, outer before inner."""
    pending = list(block[::-1])
    while pending:
        statement = pending.pop()
        yield statement
        if type(statement) not in WITH_BLOCKS:
            continue
        if isinstance(statement, If):
            pending.extend(statement.orelse[::-1])
            pending.extend(statement.then[::-1])
        elif isinstance(statement, While):
            pending.extend(statement.body[::-1])
            pending.extend(statement.head[::-1])
        elif isinstance(statement, For | Nest | Kernel | Fork):
            pending.extend(statement.body[::-1])


def of_kind(block: Block, kind: type[S]) -> Iterator[S]:
    """All statements of one kind."""
    return (statement for statement in walk(block) if isinstance(statement, kind))


def contains(block: Block, *kinds: type) -> bool:
    """Whether there is a statement of one of these kinds."""
    return any(isinstance(statement, kinds) for statement in walk(block))


def branch(test: Expression, then: Sequence[Statement], orelse: Sequence[Statement]) -> Block:
    """One of two blocks, at once where the test is known."""
    if isinstance(test, Constant):
        return tuple(then if test.value else orelse)
    return (If(test, tuple(then), tuple(orelse)),)
