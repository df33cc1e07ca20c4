"""Machine code that is kept on disk: what is found again, what never is, and files that are not what they should be."""

import ctypes
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import ROOT
from programs import CASES
from sampling import some

import adze as az
from adze.ad import differentiating
from adze.backends import disk_cache, multiversioning
from adze.backends.llvm import stored
from adze.backends.llvm.artifact import Kept
from adze.backends.llvm.assemble import link
from adze.backends.llvm.frames import entries
from adze.backends.llvm.pool import workers
from adze.core import primitive
from adze.core.digest import NoDigest, digest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for entries, which is empty and in use; what all programs share is there already, and not kept in it."""
    entries(), workers()
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "entries"))
    return tmp_path / "entries"


@dataclass
class Counts:
    compiled: int = 0
    derived: int = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """How many programs have been compiled, and how many differentiated."""
    counts = Counts()
    loops_of, of = multiversioning.loops_of, differentiating.Differentiated.of

    def counted_loops_of(*args: Any) -> Any:
        counts.compiled += 1
        return loops_of(*args)

    def counted_of(*args: Any) -> Any:
        counts.derived += 1
        return of(*args)

    monkeypatch.setattr(multiversioning, "loops_of", counted_loops_of)
    monkeypatch.setattr(differentiating.Differentiated, "of", counted_of)
    return counts


TEXT = """
@az.program
def f(x: az.Array[az.f64, "n"], k: az.i64) -> az.f64:
    return az.sum(az.sin(x) * scale) + x[k]
"""


def program(text: str = TEXT, **names: Any) -> az.Program:
    """The program of a text, as a new process would make it."""
    scope = {"az": az, "scale": 2.0, **names}
    exec(compile(text, "/somewhere/user.py", "exec"), scope)
    made = scope["f"]
    assert isinstance(made, az.Program)
    return made


X = np.linspace(0.0, 1.0, 7)


def gradient_of(f: az.Program, **options: Any) -> np.ndarray:
    made: np.ndarray = az.compile(az.grad(f), **options)(X, 2)
    return made


WANTED = 2 * np.cos(X) + (np.arange(7) == 2)


# What is found again


def test_the_second_program_is_not_derived_again(folder: Path, counts: Counts) -> None:
    np.testing.assert_allclose(gradient_of(program()), WANTED)
    assert (counts.compiled, counts.derived) == (1, 1)
    again = az.compile(az.grad(program()))
    np.testing.assert_array_equal(again(X, 2), gradient_of(program()))
    assert (counts.compiled, counts.derived) == (1, 1)
    assert again.compile_seconds < 1
    # what was generated is made when somebody wants to look
    assert "define" in again.llvm_ir and "ret" in again.assembly and "lanes" in again.loops
    assert again.peak_bytes(X, 2) >= X.nbytes
    assert (counts.compiled, counts.derived) == (2, 2)


def test_what_was_generated_reads_the_same_with_and_without_a_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for where, state in (("off", "compiled"), (str(folder), "compiled"), (str(folder), "loaded from disk")):
        monkeypatch.setenv("ADZE_CACHE", where)
        made = az.compile(az.grad(program()))
        made(X, 2)
        assert made.specialisations[0].state == state
        texts.append((made.nests, made.loops, made.llvm_ir, made.assembly))
    assert texts[0] == texts[1] == texts[2]


def test_verbs_of_verbs_and_structures_are_found(folder: Path, counts: Counts) -> None:
    for _ in range(2):
        hessian = az.compile(az.hessian(program()))(X, 2)
        value, (slope, none) = az.compile(az.vjp(program()))(X, 2, 1.0), (None, None)
        product = az.compile(az.hvp(program()))(X, 2, X)
        np.testing.assert_allclose(hessian, np.diag(-2 * np.sin(X)))
        np.testing.assert_allclose(product, -2 * np.sin(X) * X)
        np.testing.assert_allclose(value[1], WANTED)
        assert slope is none
    assert counts.compiled == 3


def test_a_program_that_has_moved_tells_its_new_line(folder: Path, counts: Counts) -> None:
    for lines in (0, 3):
        with pytest.raises(IndexError, match=rf"user\.py:{4 + lines}"):
            az.compile(az.grad(program("\n" * lines + TEXT)))(X, 7)
    assert counts.compiled == 1


def test_which_parameters_are_static_is_part_of_the_key(folder: Path) -> None:
    @az.program
    def last(x: az.f64, y: az.f64, power: int) -> az.f64:
        return x * x * y

    @az.program
    def first(power: int, x: az.f64, y: az.f64) -> az.f64:
        return x * x * y

    assert az.compile(az.grad(last, argnums=1))(3.0, 5.0, 1) == 9
    assert az.compile(az.grad(first, argnums=1))(1, 3.0, 5.0) == 30


def test_captured_arrays_are_those_of_the_program(folder: Path, counts: Counts) -> None:
    for scale in (np.arange(7.0), np.arange(7.0), np.arange(1.0, 8.0)):
        np.testing.assert_allclose(gradient_of(program(scale=scale)), scale * np.cos(X) + (np.arange(7) == 2))
    assert counts.compiled == 2
    assert all(file.stat().st_size < 30_000 for file in folder.iterdir())


def test_a_result_may_have_a_class_of_its_own(folder: Path, counts: Counts) -> None:
    text = TEXT.replace("-> az.f64", "").replace("return", "return Pair(k, ").strip() + ")\n"

    for _ in range(2):

        @dataclass
        class Local:
            first: Any
            second: Any

        result = az.compile(program(text, Pair=Local))(X, 2)
        assert isinstance(result, Local) and result.first == 2  # the class of this round
    assert counts.compiled == 1


DATA = """
@az.data
class List:
    class Nil: ...
    class Cons:
        head: az.f64
        times: az.i64
        tail: "List"

@az.program
def f(xs: List) -> az.f64:
    @az.fix
    def total(self, xs: List) -> az.f64:
        return az.case(xs, Nil=lambda: 0.0, Cons=lambda head, times, tail: head**3 * times + self(tail))
    return total(xs)
"""


def test_programs_over_data_are_found(folder: Path, counts: Counts) -> None:
    """Their results are of the types that are declared where they are found; the fields are part of the key."""
    compiled = []
    others = DATA.replace("times", "twice").replace("head**3", "2 * head**3")
    for text, factor in ((DATA, 1), (DATA, 1), (others, 2), (others, 2)):
        f = program(text)
        declared = f.parameters[0].type.declaration.owner
        xs = declared.Cons(2.0, 5, declared.Cons(3.0, 7, declared.Nil()))
        assert az.compile(f)(xs) == factor * (8 * 5 + 27 * 7)
        value, gradient = az.compile(az.value_and_grad(f))(xs)
        assert value == factor * 229 and isinstance(az.compile(az.jvp(f))(xs, xs)[1], float)
        assert gradient.head == factor * 60 and gradient.tail.head == factor * 189
        assert isinstance(gradient, declared)
        compiled.append(counts.compiled)
    assert compiled[0] == compiled[1] < compiled[2] == compiled[3]


# What is not


@pytest.mark.rest
def test_anything_that_matters_makes_another_entry(
    folder: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient_of(program())
    az.compile(program())(X, 2)
    gradient_of(program(), checks=False)
    gradient_of(program(), schedule={"jam": False})
    gradient_of(program(scale=3.0))
    gradient_of(program(TEXT.replace("sin", "cos")))
    az.compile(az.value_and_grad(program()))(X, 2)
    az.compile(program(TEXT.replace("f64", "f32")))(X.astype(np.float32), 2)
    for debug in ("bounds", "unoptimised"):
        monkeypatch.setenv("ADZE_DEBUG", debug)
        gradient_of(program())
    monkeypatch.delenv("ADZE_DEBUG")
    assert counts.compiled == 10
    surroundings = stored._surroundings()
    monkeypatch.setattr(stored, "_surroundings", lambda: (*surroundings, "another version"))
    gradient_of(program())
    assert counts.compiled == 11
    entries = [file for file in folder.iterdir() if file.suffix == ".entry"]
    assert len(entries) >= 10


def test_the_sources_of_the_compiler_are_part_of_the_key() -> None:
    assert stored._own_sources() in stored._surroundings() and len(stored._own_sources()) == 20


def test_nothing_is_kept_when_the_sources_have_changed_since(
    folder: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_surroundings", stored._surroundings.__wrapped__)
    monkeypatch.setattr(stored, "_IMPORTED", 1.0)
    for _ in range(2):
        gradient_of(program())
    assert counts.compiled == 2 and not folder.exists()


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before, meanings = dict(primitive.PRIMITIVES), dict(primitive.MEANINGS)
    yield
    for known, rows in ((primitive.PRIMITIVES, before), (primitive.MEANINGS, meanings)):
        known.clear()
        known.update(rows)


def test_primitives_of_the_user_are_compiled_each_time(folder: Path, counts: Counts, table: None) -> None:
    own = az.primitive("own", numpy=np.sin, llvm=az.Expansion(az.sin), derivative=lambda y, x: (lambda t: t,))
    for _ in range(2):
        az.compile(program(TEXT.replace("az.sin", "own"), own=own))(X, 2)
    assert counts.compiled == 2
    with pytest.raises(NoDigest, match="the primitive own"):
        digest(program(TEXT.replace("az.sin", "own"), own=own).at().term)
    az.primitive("tanh", numpy=np.tanh, llvm=az.Libm("tanh"), derivative=lambda y, x: (lambda t: t,))
    with pytest.raises(NoDigest, match="replaced"):
        digest(program().at().term)


@pytest.mark.parametrize("wanted", ["off", "0"])
def test_nothing_is_kept_when_it_is_off(
    wanted: str, folder: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADZE_CACHE", wanted)
    for _ in range(2):
        gradient_of(program())
    assert counts.compiled == 2 and not folder.exists()


# Digests


def test_programs_with_one_digest_are_equal() -> None:
    found: dict[bytes, Any] = {}
    for case in CASES:
        term = case.program.at().term
        assert found.setdefault(digest(term).value, term) == term
    assert len(found) > 100


def test_digests_tell_numbers_apart() -> None:
    values = [digest(part).value for part in (1, True, 1.0, "1", b"1", None, (1,), ((1,),), (), "", 0.0, -0.0)]
    assert len(set(values)) == len(values)
    with pytest.raises(NoDigest, match="a function has no digest"):
        digest(lambda: 0)


# Files


def test_a_damaged_entry_is_made_anew(folder: Path, counts: Counts) -> None:
    wanted = gradient_of(program())
    for number, damage in enumerate(
        (lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + b"!" + b[51:], lambda b: b[20:])
    ):
        for file in folder.iterdir():
            file.write_bytes(damage(file.read_bytes()))
        np.testing.assert_array_equal(gradient_of(program()), wanted)
        assert counts.compiled == 2 + number
    (file,) = folder.iterdir()
    os.replace(file, folder / "another.entry")
    assert disk_cache.fetch("another") is None and not list(folder.iterdir())


def test_contents_that_nobody_can_read_are_made_anew(folder: Path, counts: Counts) -> None:
    wanted = gradient_of(program())
    for file in folder.iterdir():
        disk_cache.store(file.stem, b"checked, but no pickle")
    np.testing.assert_array_equal(gradient_of(program()), wanted)
    assert counts.compiled == 2


@dataclass
class Of:
    """A program whose code has a branch that sizes decide, with its arguments and its meaning."""

    program: az.Program
    arguments: tuple[Any, ...]
    wanted: np.ndarray


def product() -> Of:
    @az.program
    def product(a: az.Array[az.f64, "n n"]) -> az.Array[az.f64, "n n"]:
        return a @ a

    matrix = np.arange(9.0).reshape(3, 3)
    return Of(product, (matrix,), matrix @ matrix)


CUT = b"\x10\0\0\0\0\0\0\0\x7fELF\x02\x01\x01"


def entry_of(compiled: az.Compiled) -> stored.Entry:
    assert isinstance(compiled.program, az.Program)
    entry: stored.Entry = compiled.backend.version(compiled.program.at())._entry
    return entry


def changed(**fields: Any) -> Callable[[Kept], Any]:
    return lambda kept: replace(kept, **fields)


@pytest.mark.parametrize(
    "change",
    some(
        [
            changed(machine_code=b""),
            changed(machine_code=b"no code at all"),
            changed(machine_code=CUT + bytes(40)),
            changed(machine_code=bytes(8) * 3),
            changed(machine_code=None),
            changed(interface=None),
            changed(branches=3),
            lambda kept: replace(kept, branches={name: b"no code" for name in kept.branches}),
            lambda kept: replace(kept, branches={name: CUT for name in kept.branches}, function=b"no loops"),
            lambda kept: replace(kept, branches=dict.fromkeys(kept.branches), function=pickle.dumps("no loops")),
            lambda kept: replace(kept, branches=dict.fromkeys(kept.branches), function=None),
            lambda kept: 7,
            lambda kept: ("no condition", None),
            lambda kept: (kept,),
            lambda kept: (),
        ],
        5,
    ),
)
def test_an_intact_entry_that_makes_no_sense_is_made_anew(folder: Path, change: Callable[[Kept], Any]) -> None:
    made = product()
    compiled = az.compile(made.program, threads=1)
    compiled(*made.arguments)
    entry = entry_of(compiled)
    kept = entry.fetch()
    assert isinstance(kept, Kept) and any(kept.branches.values())
    disk_cache.store(entry.key, b"")
    entry.store(change(kept))
    for _ in range(2):
        again = product()
        np.testing.assert_array_equal(az.compile(again.program, threads=1)(*again.arguments), made.wanted)
    mended = entry.fetch()
    assert mended.machine_code == kept.machine_code


@pytest.mark.parametrize("contents", [b"", b"no code", CUT, CUT + bytes(40)])
def test_code_of_the_runtime_that_makes_no_sense_is_made_anew(folder: Path, contents: bytes) -> None:
    text = "define i64 @five() {\n  ret i64 5\n}\n"

    def five() -> int:
        library = stored.load_runtime(text, lambda code: link(code, ("five",)))
        return int(ctypes.CFUNCTYPE(ctypes.c_int64)(library["five"])())

    assert five() == 5
    (file,) = folder.iterdir()
    disk_cache.store(file.stem, contents)
    assert five() == 5
    whole = disk_cache.fetch(file.stem)
    assert whole is not None and len(whole) > len(contents)


# Who may write


def test_the_folder_and_those_around_it_are_for_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "a" / "b" / "c"))
    before = os.umask(0)
    try:
        disk_cache.store("key", b"contents")
    finally:
        os.umask(before)
    for each in ("a", "a/b", "a/b/c"):
        assert (tmp_path / each).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/b/c/key.entry").stat().st_mode & 0o777 == 0o600
    assert disk_cache.fetch("key") == b"contents"


@pytest.mark.parametrize("mode", [0o770, 0o722, 0o702])
def test_what_others_can_write_is_not_used(folder: Path, counts: Counts, mode: int) -> None:
    wanted = gradient_of(program())
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=r"entries can be written by others than its owner") as caught:
        np.testing.assert_array_equal(gradient_of(program()), wanted)
    assert caught[0].filename == __file__
    with warnings.catch_warnings(action="error"):  # one is enough
        gradient_of(program())
        gradient_of(program(scale=3.0))
    assert counts.compiled == 4
    folder.chmod(0o755)
    gradient_of(program())
    assert counts.compiled == 4


def test_an_entry_that_others_can_write_is_not_used(folder: Path, counts: Counts) -> None:
    gradient_of(program())
    for file in folder.iterdir():
        file.chmod(0o664)
    with pytest.warns(RuntimeWarning, match=r"\.entry can be written by others than its owner"):
        gradient_of(program())
    assert counts.compiled == 2
    gradient_of(program())  # it was made anew, in a file for its owner
    assert counts.compiled == 2


@pytest.mark.parametrize("foreign", ["folder", "entry"])
def test_what_belongs_to_another_user_is_not_used(
    folder: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    gradient_of(program())
    stat, fstat = Path.stat, os.fstat

    def of_another(status: os.stat_result) -> os.stat_result:
        return os.stat_result([*status[:4], status.st_uid + 1, *status[5:]])

    if foreign == "folder":

        def of_path(self: Path, **how: Any) -> os.stat_result:
            return of_another(stat(self, **how)) if self == folder else stat(self, **how)

        monkeypatch.setattr(Path, "stat", of_path)
    else:
        monkeypatch.setattr(os, "fstat", lambda number: of_another(fstat(number)))
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        gradient_of(program())
    assert counts.compiled == 2


@pytest.mark.parametrize("home", ["", "relative", "./relative"])
def test_names_that_mean_no_folder_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("ADZE_CACHE", "~nosuchuser/entries")
    assert disk_cache.folder() == tmp_path / ".cache" / "adze"
    monkeypatch.delenv("ADZE_CACHE")
    assert disk_cache.folder() == tmp_path / ".cache" / "adze"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert disk_cache.folder() == tmp_path / "caches" / "adze"
    monkeypatch.setenv("ADZE_CACHE", "~/entries")
    assert disk_cache.folder() == tmp_path / "entries"


def test_what_was_not_used_for_long_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADZE_CACHE_MB", "0.01")
    for number in range(4):
        disk_cache.store(f"old{number}", bytes(2000))
        os.utime(folder / f"old{number}.entry", (1000 + number, 1000 + number))
    assert disk_cache.fetch("old0") == bytes(2000)  # which is a use
    disk_cache.store("new", bytes(3900))
    assert {file.stem for file in folder.iterdir()} == {"old0", "old2", "old3", "new"}
    disk_cache.store("large", bytes(20_000))
    assert not list(folder.iterdir())


def test_files_that_nobody_finished_go_and_those_of_others_stay(folder: Path) -> None:
    disk_cache.store("a", b"a")
    (folder / "tmp").mkdir()
    old = folder / "tmpold.unfinished"
    for file in (old, folder / "tmpnew.unfinished", folder / "tmp.npy"):
        file.write_bytes(b"")
    for each in folder.iterdir():
        os.utime(each, (time.time() - 7200,) * 2)
    os.utime(folder / "tmpnew.unfinished")
    disk_cache.store("b", b"b")
    wanted = {"a.entry", "b.entry", "tmpnew.unfinished", "tmp", "tmp.npy"}
    assert {file.name for file in folder.iterdir()} == wanted


@pytest.mark.parametrize("wanted", ["much", "inf", "nan", "-1"])
def test_a_bound_that_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("ADZE_CACHE_MB", wanted)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"ADZE_CACHE_MB must be a number of megabytes, got '{wanted}'"):
            az.compile(program())(X, 2)
    monkeypatch.setenv("ADZE_CACHE_MB", " ")
    assert disk_cache.bound() == 256_000_000


def test_many_writers_and_readers(folder: Path) -> None:
    contents, wrong = [bytes([k]) * (1000 * k + 1) for k in range(8)], []

    def work(own: bytes) -> None:
        for _ in range(40):
            disk_cache.store("key", own)
            if disk_cache.fetch("key") not in contents:
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(own,)) for own in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and [file.name for file in folder.iterdir()] == ["key.entry"]


def test_a_folder_that_cannot_be_used(tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ADZE_CACHE", str(tmp_path / "file" / "entries"))
    for _ in range(2):
        np.testing.assert_allclose(gradient_of(program()), WANTED)
    assert counts.compiled == 2


def test_a_folder_that_can_only_be_read(folder: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient_of(program())
    before = sorted(folder.iterdir())

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(disk_cache.tempfile, "mkstemp", refuse)
    gradient_of(program())
    assert counts.compiled == 1
    gradient_of(program(), checks=False)
    assert counts.compiled == 2 and sorted(folder.iterdir()) == before


@pytest.mark.rest
def test_another_process_finds_it(folder: Path) -> None:
    script = """if True:
        import time
        import numpy as np, adze as az
        @az.program
        def f(x: az.Array[az.f64, "n"]) -> az.f64:
            return az.sum(az.exp(az.sin(x)) * az.cumsum(x))
        gradient = az.compile(az.grad(f), threads=2)
        print(gradient(np.arange(10.0)).tobytes().hex())
        print(gradient.compile_seconds)
    """
    found = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=ROOT,
        )
        found.append(done.stdout.split())
    names = sorted(file.name for file in folder.iterdir())
    assert found[0][0] == found[1][0] and len(names) == 3  # the program, and the two parts of the runtime
    assert float(found[1][1]) < float(found[0][1])


# Functions of C


def environment(library: Any) -> az.Program:
    """A program that asks the mathematical library for its state: four words, which are not all zero."""
    state = az.operation("state", c=az.c_function(library, "fegetenv"), result=az.Array[az.i64, 4])
    return az.program(lambda n: az.count_nonzero(state()) + n)


def test_functions_of_c_are_known_by_their_symbols(folder: Path, counts: Counts) -> None:
    """A later process has the library at another address."""
    for _ in range(2):
        assert az.compile(environment("libm.so.6"))(3) > 3
    assert counts.compiled == 1
    address = az.c_function("libm.so.6", "fegetenv").address.to_bytes(8, "little")
    kept = [file.read_bytes() for file in folder.iterdir()]
    assert any(b"fegetenv" in each for each in kept) and not any(address in each for each in kept)


def test_another_version_of_a_library_is_another_program(folder: Path, counts: Counts, tmp_path: Path) -> None:
    version, own = az.c_function("libm.so.6", "fegetenv").version, tmp_path / "libm_copy.so"
    assert version is not None
    shutil.copy(version[0], own)
    for _ in range(2):
        assert az.compile(environment(own))(3) > 3
    assert counts.compiled == 1
    os.utime(own)
    assert az.compile(environment(own))(3) > 3
    assert counts.compiled == 2


def test_the_rules_of_an_operation_are_part_of_the_key(folder: Path, counts: Counts) -> None:
    """The programs are the same, their gradients are not; a rule may come to its operation again."""
    same = az.c_function("libc.so.6", "bcmp")

    def gradient(factor: float) -> Any:
        def rule(primals: Any, cotangent: Any) -> Any:
            return 0.0 * primals[0], factor * cotangent * az.where(az.isnan(copied(*primals)), 1.0, 1.0)

        copied = az.operation("copied", c=same, result=lambda a, b: b, derivative={"vjp": rule})
        return az.compile(az.grad(az.program(lambda a, b: az.sum(copied(a, b))), argnums=1))(1.0, np.ones(8))

    for factor in (2.0, 2.0, 3.0):
        np.testing.assert_array_equal(gradient(factor), np.full(8, factor))
    assert counts.compiled == 2


def test_functions_in_capsules_are_compiled_by_each_process(folder: Path, counts: Counts) -> None:
    from test_c_functions import scaled

    for _ in range(2):
        np.testing.assert_array_equal(az.compile(az.program(lambda x: scaled(x, 2.0)))(X), 2 * X + 1)
    assert counts.compiled == 2
