"""The constructs: one table that says what each one is, so that nothing else has to know them by name.

A row has a construct's name, the method that gives it a meaning and what this is handed, its type rule, its blocks and
what these are (an element of an array, an operator, a step, a branch), where its extents are, and its properties.
Whoever needs to know whether a construct loops, or may be moved, asks the row. What a row does not state is what is
safe to assume: it is not pure, it may hold an array out of sight, it must stay where it is.

    reduce    one element for each index, which an operator combines    extents: the first argument

An operation of a term or of a graph has its row as ``operation.row``. (Schenck et al. 2022, section 2.1, has the
constructs with blocks; the properties of blocks are those of regions in MLIR: Lattner et al. 2021.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from typing import Any

from . import type_rules as rules
from .type_rules import BinderRule, TypeRule, rules_of
from .types import accumulator_of, i64


class Role(Enum):
    """What a block is to its construct."""

    ELEMENT = "run for each index of the extents, in any order: its results are the elements"
    OPERATOR = "combines two elements, any number of times"
    TEST = "says whether a further step is made"
    STEP = "run in order, from the state that the step before has left"
    BRANCH = "run if it is chosen"
    ONCE = "run once where the construct stands"
    BESIDE = "run once, beside the others"
    RULE = "says a derivative: it never runs where the construct stands"
    FUNCTION = "run where the function is applied"

    @property
    def repeated(self) -> bool:
        """Whether it runs any number of times."""
        return self in (Role.ELEMENT, Role.OPERATOR, Role.TEST, Role.STEP, Role.FUNCTION)

    @property
    def iterated(self) -> bool:
        """Whether it is run by each iteration."""
        return self in (Role.ELEMENT, Role.TEST, Role.STEP)

    @property
    def unordered(self) -> bool:
        """Whether its runs have no order, among themselves or beside other blocks."""
        return self in (Role.ELEMENT, Role.OPERATOR, Role.BESIDE)

    @property
    def always(self) -> bool:
        """Whether it runs exactly once where the construct does."""
        return self in (Role.ONCE, Role.BESIDE)


# The parameters of the method that is a construct's meaning, from its static part, arguments and blocks.
Parameters = Callable[[tuple[Any, ...], Sequence[Any], Sequence[Any]], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Construct:
    """A row of the table."""

    name: str
    method: str  # of Language, which says what it means
    types: TypeRule
    parameters: Parameters
    blocks: Mapping[str, Role] = field(default_factory=dict)  # by what each is called
    more: Role | None = None  # what further blocks are, where their number varies; then `labels` are their names
    labels: Callable[[tuple[Any, ...]], tuple[str, ...]] | None = None
    binders: BinderRule = rules.no_binders  # the parameters of the next block
    extents: Callable[[tuple[Any, ...]], slice] | None = None  # which arguments the indices of the first block end at
    takes: Callable[[tuple[Any, ...]], int] | None = None  # the first argument whose memory a result may take
    places: bool = False  # an element begins with the place that its values go to
    stacked: bool = False  # results are stacked along the first argument, which the static part names as a dim
    control: bool = False  # it says only how often its blocks run, and may hold statements alone
    ordered: bool = True  # what it runs is run in order
    pure: bool = False  # it is no statement by itself
    writes: bool = False  # it updates its first argument, an accumulator
    external: bool = True  # it runs code that is not the program's
    partial: bool = True  # it may not end
    elementwise: bool = False  # it makes scalars of scalars or of elements of arrays, besides what is in its branches
    cheap: bool = False  # it takes about as long as an addition, besides what is in its branches
    movable: bool = False  # it may be computed at another place, if nothing in it has an effect or may not end
    holds: bool = True  # its results may hold arrays among its operands, out of sight
    higher_order: bool = False  # it makes or uses functions, tuples and declared types as values
    expansion: Callable[..., Any] | None = None  # what one from outside means in terms of others, on expressions
    own: set[type] = field(default_factory=set)  # the interpretations that have another meaning of one from outside
    calls: bool = False  # it runs code that stands elsewhere in the program, which may come back to it
    permutes: bool = False  # the elements of its result are the indices of its first argument, each of them once
    discrete: bool = False  # its results do not move when its operands do: there is no derivative
    acts: bool = False  # what it does is done as often, and in the order, as the program says
    acting: Construct | None = None  # what it is where its static part says that it has effects

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """What its first blocks are."""
        return tuple(self.blocks.values())

    def role(self, position: int) -> Role:
        """What a block is."""
        if position < len(self.roles):
            return self.roles[position]
        assert self.more is not None, f"{self.name} has {len(self.roles)} blocks"
        return self.more

    def names(self, static: tuple[Any, ...], count: int) -> tuple[str, ...]:
        """What its blocks are called, as people read it."""
        more = () if self.labels is None else self.labels(static)
        return (*self.blocks, *more, *[""] * (count - len(self.blocks) - len(more)))

    def count(self, static: tuple[Any, ...]) -> int | None:
        """How many blocks it has; None when that may be any number."""
        if self.more is None:
            return len(self.blocks)
        return None if self.labels is None else len(self.blocks) + len(self.labels(static))

    def iterations(self, operation: Any) -> Sequence[Any]:
        """The arguments of an operation that say how far the indices of its first block go."""
        found: Sequence[Any] = () if self.extents is None else operation.args[self.extents(operation.static)]
        return found

    # What the blocks say

    @cached_property
    def loops(self) -> bool:
        """Whether a block may run any number of times."""
        return any([role.repeated for role in self._all])

    @cached_property
    def branches(self) -> bool:
        """Whether a block may not run although the construct does, by choice."""
        return Role.BRANCH in self._all or Role.RULE in self._all

    @cached_property
    def splits(self) -> bool:
        """Whether its blocks may run side by side."""
        return Role.BESIDE in self._all

    @cached_property
    def chooses(self) -> bool:
        """Whether it runs one of its blocks."""
        return Role.BRANCH in self._all

    @cached_property
    def makes_elements(self) -> bool:
        """Whether it runs its first block for each index of its extents, without a state."""
        return self.roles[:1] == (Role.ELEMENT,) and self.extents is not None

    @cached_property
    def elements(self) -> bool:
        """Whether it runs its first block for each index, and what that gives goes into new memory."""
        return self.makes_elements and self.takes is None

    @cached_property
    def parallel(self) -> bool:
        """Whether its elements may be computed side by side, and have their places or are combined."""
        return self.elements and not self.ordered and not self.places

    @cached_property
    def updates(self) -> bool:
        """Whether what it runs updates its arguments, rather than to give new ones."""
        return self.takes is not None and Role.STEP not in self.roles

    @cached_property
    def combines(self) -> bool:
        """Whether its second block combines the elements that its first one gives."""
        return self.makes_elements and self.roles[1:] == (Role.OPERATOR,)

    @cached_property
    def inline(self) -> bool:
        """Whether its blocks run where it stands, at most once."""
        return bool(self._all) and not self.loops

    @cached_property
    def straight(self) -> bool:
        """Whether nothing in it decides what is computed: no choice, no state, no function."""
        fixed = {Role.ELEMENT, Role.OPERATOR, Role.ONCE}
        return not self.higher_order and fixed.issuperset(self._all)

    @cached_property
    def statement(self) -> bool:
        """Whether it has an effect by itself."""
        return self.writes or not self.pure

    @cached_property
    def values(self) -> bool:
        """Whether it makes or uses functions, tuples and declared types, rather than to choose by one."""
        return self.higher_order and not self.chooses

    @cached_property
    def functions(self) -> bool:
        """Whether its block runs where a function is applied."""
        return Role.FUNCTION in self._all

    @cached_property
    def _all(self) -> tuple[Role, ...]:
        return self.roles if self.more is None else (*self.roles, self.more)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], Construct], tuple[str]]:
        return added, (self.name,)


PROPERTIES = tuple([each.name for each in fields(Construct) if isinstance(each.default, bool)])

CONSTRUCTS: dict[str, Construct] = {}
ADDED: dict[str, Construct] = {}  # from outside: the first static part of an operation is such a row


def construct(op: str, static: tuple[Any, ...]) -> Construct:
    """The row of an operation. TypeError where no construct has this name."""
    row = CONSTRUCTS.get(op)
    if row is not None:
        return row.acting if row.acting is not None and static[0].effects else row
    if static and isinstance(static[0], Construct):
        return static[0]
    raise TypeError(f"no construct is called {op!r}")


def added(name: str) -> Construct:
    """The row that was added by this name. TypeError where there is none."""
    if name not in ADDED:
        raise TypeError(f"no construct is called {name!r} here: import the module that adds it")
    return ADDED[name]


def _row(name: str, types: TypeRule, parameters: Parameters, method: str = "", **stated: Any) -> None:
    CONSTRUCTS[name] = Construct(name, method or name, types, parameters, **stated)


def _first(static: tuple[Any, ...]) -> slice:
    return slice(0, 1)


def _all_arguments(static: Any, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    return (a,)


def _from(position: int) -> Callable[[tuple[Any, ...]], int]:
    return lambda static: position


_COMBINES = {"element": Role.ELEMENT, "operator": Role.OPERATOR}
_PLAIN: dict[str, Any] = {"partial": False, "pure": True, "external": False, "holds": False, "ordered": False}
_SCALARS: dict[str, Any] = {**_PLAIN, "elementwise": True, "movable": True}
_ARRAYS: dict[str, Any] = {**_PLAIN, "movable": True}
_VALUES: dict[str, Any] = {**_PLAIN, "holds": True, "higher_order": True}
_STATEMENT: dict[str, Any] = {**_PLAIN, "pure": False}

# fmt: off

# Scalars and control
_row("primitive", rules.primitive, lambda s, a, b: (s[0], a), **_SCALARS)
_row("cond", rules.cond, lambda s, a, b: (a[0], *b), blocks={"then": Role.BRANCH, "else": Role.BRANCH},
     control=True, cheap=True, **_SCALARS)
_row("loop", rules.loop, lambda s, a, b: (s[0], a[0], a[1:], *b), blocks={"step": Role.STEP},
     binders=lambda s, a, earlier: (i64, *a[1:]), extents=_first, takes=_from(1), stacked=True,
     **{**_ARRAYS, "ordered": True})
_row("while", rules.open_loop, lambda s, a, b: (a, *b), method="while_loop",
     blocks={"test": Role.TEST, "step": Role.STEP}, binders=lambda s, a, earlier: tuple(a), takes=_from(0),
     **{**_PLAIN, "ordered": True, "partial": True})

# Arrays
_row("size", rules.size, lambda s, a, b: (a[0], s[0]), cheap=True, discrete=True, **_SCALARS)
_row("index", rules.index, lambda s, a, b: (a[0], a[1:]), cheap=True, **_SCALARS)
_row("generate", rules.generate, lambda s, a, b: (s[0], a[0], *b), blocks={"element": Role.ELEMENT},
     binders=lambda s, a, earlier: (i64,), extents=_first, stacked=True, control=True, **_ARRAYS)
_row("reduce", rules.combination(1), lambda s, a, b: (a[0], a[1:], *b), blocks=_COMBINES,
     binders=rules.of_combination(1), extents=_first, **_ARRAYS)
_row("scan", rules.stacked(rules.combination(1)), lambda s, a, b: (s[0], a[0], a[1:], *b), blocks=_COMBINES,
     binders=rules.of_combination(1), extents=_first, stacked=True, **{**_ARRAYS, "ordered": True})
_row("histogram", rules.stacked(rules.binned), lambda s, a, b: (s[0], a[0], a[1], a[2:], *b),
     blocks={"bin, element": Role.ELEMENT, "operator": Role.OPERATOR}, binders=rules.of_combination(2),
     extents=lambda s: slice(1, 2), stacked=True, places=True, **_ARRAYS)
_row("scatter", rules.scatter, lambda s, a, b: (s[0], a[: s[1]], a[s[1] :], *b),
     blocks={"place, element": Role.ELEMENT}, binders=lambda s, a, earlier: (i64,) * int(s[1]),
     extents=lambda s: slice(0, s[1]), takes=lambda s: int(s[1]), places=True, **{**_ARRAYS, "ordered": True})
_row("argsort", rules.argsort, lambda s, a, b: (a[0],), permutes=True, discrete=True, **_ARRAYS)

# Meanings given by the user
_row("custom", rules.custom, lambda s, a, b: (s, a, b[0], b[1:]), blocks={"body": Role.ONCE}, more=Role.RULE,
     labels=rules_of, binders=rules.of_custom, **{**_PLAIN, "holds": True})
_row("probe", lambda s, a, b: tuple(a), lambda s, a, b: (s[0], a),
     **{**_STATEMENT, "holds": True, "external": True})
_row("foreign", lambda s, a, b: tuple(s[0].result_types(a)), lambda s, a, b: (s[0], a), **{**_PLAIN, "external": True})
CONSTRUCTS["foreign"] = replace(CONSTRUCTS["foreign"], acting=replace(CONSTRUCTS["foreign"], pure=False, acts=True))

# The higher-order fragment
_row("function", rules.function, lambda s, a, b: (s[0], *b), blocks={"body": Role.FUNCTION},
     binders=lambda s, a, earlier: s[0].parameters, **_VALUES)
_row("fix", rules.function, lambda s, a, b: (s[0], *b), blocks={"body": Role.FUNCTION},
     binders=lambda s, a, earlier: (s[0], *s[0].parameters), **_VALUES)
_row("apply", rules.apply, lambda s, a, b: (a[0], a[1:]), calls=True, **{**_VALUES, "pure": False, "partial": True})
_row("pack", rules.pack, _all_arguments, cheap=True, **_VALUES)
_row("project", rules.project, lambda s, a, b: (a[0], s[0]), cheap=True, **_VALUES)
_row("construct", rules.declared, lambda s, a, b: (s[0], s[1], a), cheap=True, **_VALUES)
_row("case", rules.case, lambda s, a, b: (a[0], s, b), more=Role.BRANCH, labels=lambda s: s, binders=rules.of_case,
     **_VALUES)
_row("par", lambda s, a, b: tuple([type for block in b for type in block]), lambda s, a, b: (b,), more=Role.BESIDE,
     **{**_PLAIN, "holds": True})

# Procedures, and data as addresses of cells (interpreters/first_order)
_row("call", lambda s, a, b: tuple([type for each in s for type in each.results]), lambda s, a, b: (s, a), calls=True,
     **{**_PLAIN, "holds": True, "pure": False, "partial": True})
_row("cell", lambda s, a, b: (i64,), lambda s, a, b: (s[0], a), **{**_PLAIN, "holds": True})
_row("open", rules.opened, lambda s, a, b: (a[0], s, b), more=Role.BRANCH,
     labels=lambda s: tuple([str(number) for number in range(len(s))]), binders=rules.of_opened,
     **{**_PLAIN, "holds": True})

# Effects
_row("accumulate", lambda s, a, b: (*a, *b[0]), lambda s, a, b: (a, *b), blocks={"body": Role.ONCE},
     binders=lambda s, a, earlier: tuple([accumulator_of(type) for type in a]), takes=_from(0), **_ARRAYS)
_row("add_to", rules.add_to, lambda s, a, b: (a[0], a[1], a[2:]), writes=True, **_ARRAYS)
_row("require", rules.require, lambda s, a, b: (a[0], s[0], a[1:]), discrete=True, **_STATEMENT)

# fmt: on
