"""Where chunks come from: arrays of any layout, files, Dask's arrays, and whatever gives ranges."""

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from load import ROOT

import adze as az
from adze.backends.chunked import files, sources
from adze.backends.chunked.chunked import Chunked
from adze.backends.chunked.sources import File, source_of

da = pytest.importorskip("dask.array")

Matrix = az.Array[az.f64, "n d"]


@az.program
def moments(x: Matrix) -> tuple[az.Array[az.f64, "d"], Matrix]:
    mean = az.mean(x, axis=0)
    return az.mean((x - mean) ** 2, axis=0), x - mean


@az.program
def dot(x: az.Array[az.f64, "n"], y: az.Array[az.f64, "n"]) -> az.f64:
    return az.sum(x * y)


def chunked(f: Any, chunk: int | None = 7, **options: Any) -> Chunked:
    return az.compile(f, backend="dask", over="n", chunk=chunk, **options)


X = np.random.default_rng(3).normal(size=(50, 4))


def check(x: Any, wanted: Any = X, chunk: int | None = 7, **options: Any) -> None:
    variance, rest = chunked(moments, chunk, **options)(x)
    np.testing.assert_allclose(variance, wanted.var(0), rtol=1e-12)
    np.testing.assert_allclose(rest.compute(), wanted - wanted.mean(0), rtol=1e-12, atol=1e-15)
    assert rest.chunks[1] == (wanted.shape[1],)


@pytest.mark.rest
def test_arrays_of_any_layout() -> None:
    for x in (X, np.asfortranarray(X), X[::-1], X[:, ::-1], np.repeat(X, 2, 0)[::2], X.tolist()):
        check(x, np.asarray(x))
    read_only = X.copy()
    read_only.flags.writeable = False
    check(read_only)


@pytest.mark.rest
def test_chunks_of_dask_without_rows() -> None:
    for lengths in ((4, 0, 46), (0, 0, 50), (20, 30, 0), (0, 20, 0, 0, 30)):
        check(da.from_array(X, chunks=(lengths, (4,))), chunk=None)


def saved(folder: Path, offset: int = 64) -> Path:
    path = folder / "x.bin"
    path.write_bytes(b"." * offset + X.tobytes())
    return path


@pytest.mark.rest
def test_files_are_read_not_mapped(tmp_path: Path) -> None:
    path = saved(tmp_path)
    mapped = np.memmap(path, np.float64, "r", 64, X.shape)
    for part in (mapped, mapped[5:40], mapped[5:40][2:]):
        source = source_of(part, Matrix, 0, "x")
        assert isinstance(source, File) and source.path == str(path)
        assert np.array_equal(source.read(3, 9), part[3:9])
        check(part, np.asarray(part))
    assert not isinstance(source_of(mapped[::2], Matrix, 0, "x"), File)  # a stride: what is in memory is taken
    check(mapped[::2], np.asarray(mapped[::2]))
    private = np.memmap(path, np.float64, "c", 64, X.shape)
    private[0] = 3.0
    check(private, np.asarray(private))
    across = source_of(np.memmap(path, np.float64, "r", 64, X.shape), az.Array[az.f64, "d n"], 1, "x")
    assert isinstance(across, File) and np.array_equal(across.read(1, 3), X[:, 1:3])
    check(np.load(_saved_by_numpy(tmp_path), mmap_mode="r"))


def _saved_by_numpy(folder: Path) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def test_a_file_that_is_cut_off_or_gone_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path)
    mapped = np.memmap(path, np.float64, "r", 64, X.shape)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OSError, match=r"x.bin is cut off: 1664 bytes are needed, and it has 1564"):
        chunked(moments)(mapped)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"x.bin is not there: each worker must see the file by this path"):
        chunked(moments)(mapped)


@pytest.fixture(params=["past the cache", "through it", "where it has no such reads"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are read: as if the cache of the system had them, or had nothing of them."""
    cached, opened = request.param == "through it", files._opened

    def without_direct(path: str, flags: int = 0) -> Any:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags)

    monkeypatch.setattr(files, "_is_cached", lambda *_: cached)
    if request.param == "where it has no such reads":
        monkeypatch.setattr(files, "_opened", without_direct)
    return str(request.param)


@pytest.mark.parametrize("offset", [0, 5, 64, 128, 4096, 10_000])
def test_ranges_of_files_at_any_place(reading: str, offset: int, tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 50_003).astype(np.uint8)
    path, buffer = tmp_path / "x.bin", files.Buffer()
    path.write_bytes(content.tobytes())
    for start, size in ((offset, 8 * 1000), (offset, 0), (offset, 3), (offset, len(content) - offset), (offset + 8, 8)):
        found = files.read(str(path), start, size, buffer, True)
        assert np.array_equal(found, content[start : start + size])
        assert start % 8 or size == 0 or found.ctypes.data % 8 == 0
    with pytest.raises(OSError, match=r"x.bin is cut off: 50004 bytes are needed, and it has 50003"):
        files.read(str(path), offset, len(content) - offset + 1, buffer, True)


def test_what_is_read_once_is_read_past_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    past: list[int] = []
    read_past = files._read_past
    monkeypatch.setattr(files, "_is_cached", lambda *_: False)
    monkeypatch.setattr(files, "_read_past", lambda *given: past.append(1) or read_past(*given))
    path = saved(tmp_path)
    mapped = np.memmap(path, np.float64, "r", 64, X.shape)
    total = chunked(az.program(lambda x: az.sum(x)).at(Matrix), 25)
    results = []
    for count in (2, 2, 2):  # of the first call's chunks, and no more of those that read the array again
        results.append(total(mapped))
        assert len(past) == count
    assert len(set(results)) == 1
    past.clear()
    other = np.memmap(path, np.float64, "r", 64, (40, 4))
    chunked(moments, 20)(other)  # goes through it twice, and once more for its result
    assert not past
    monkeypatch.setattr(sources, "available", lambda: 100)  # bytes: too few to keep the file
    chunked(moments, 20)(other)
    assert past


def test_what_was_written_through_a_map_is_read(reading: str, tmp_path: Path) -> None:
    mapped = np.memmap(saved(tmp_path), np.float64, "r+", 64, X.shape)
    mapped[7] = 3.0
    assert chunked(az.program(lambda x: az.sum(x[7])).at(Matrix))(mapped) == 12.0


def test_what_the_system_has_in_its_cache(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(100_000))  # which is in the cache: nothing else has it yet
    assert files._is_cached(str(path), 5000, 90_000) and files._is_cached(str(path), 0, 0)


def test_parts_of_rows_of_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = saved(tmp_path)
    rows = np.memmap(path, np.float64, "r", 64, X.shape)
    source = source_of(rows, az.Array[az.f64, "d n"], 1, "x")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OSError, match=r"x.bin is cut off: 1664 bytes are needed, and it has 1564"):
        source.read(0, 2)


class Ranges:
    """What zarr and h5py are to a program: it has a shape, a scalar type, and gives ranges."""

    shape, dtype = X.shape, X.dtype

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getitem__(self, place: Any) -> Any:
        self.asked.append(place)
        return X[place]


def test_whatever_gives_ranges() -> None:
    ranges = Ranges()
    check(ranges)
    assert (slice(0, 7),) in ranges.asked and (slice(49, 50),) in ranges.asked


@pytest.mark.rest
def test_arrays_of_dask() -> None:
    for chunks in ((10, 4), ((3, 40, 7), (4,)), (50, 1), ((20, 30), (1, 3))):
        check(da.from_array(X, chunks=chunks), chunk=None)
    rows = chunked(moments, None)(da.from_array(X, chunks=((3, 40, 7), (4,))))[1]
    assert rows.chunks == ((3, 40, 7), (4,))
    assert chunked(moments, 20)(da.from_array(X, chunks=((3, 40, 7), (4,))))[1].chunks[0] == (20, 20, 10)
    unknown = da.from_array(X, chunks=(10, 4))
    unknown = unknown[unknown[:, 0] > 0]
    assert np.isnan(unknown.shape[0])
    check(unknown, X[X[:, 0] > 0], chunk=None)


def test_bits_depend_on_chunks_alone() -> None:
    x, y = X[:, 0].copy(), X[:, 1].copy()
    wanted = chunked(dot, 10)(x, y)
    assert chunked(dot, None)(da.from_array(x, chunks=10), y) == wanted
    with pytest.warns(UserWarning, match="arguments have different chunks: those of the first one are taken"):
        assert chunked(dot, None)(da.from_array(x, chunks=10), da.from_array(y, chunks=7)) == wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chunked(dot, 10)(da.from_array(x, chunks=5), da.from_array(y, chunks=7)) == wanted


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (da.ones((50, 4), chunks=10, dtype="f4"), "got an array of float32"),
        (da.ones(50, chunks=10), r"with shape \(50,\)"),
        (X.astype("f4"), "float32"),
        (np.array([[object()]]), "not numeric"),
        (3.0, "x"),
        ("text", "x"),
        (None, "x"),
    ],
)
def test_wrong_arguments(x: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        chunked(moments)(x)


def test_sizes_that_contradict() -> None:
    with pytest.raises(ValueError, match=r"dot: n is 3 in argument 'x'.*but 4 in argument 'y'"):
        chunked(dot)(np.ones(3), da.ones(4, chunks=2))


def test_a_bound_on_memory() -> None:
    x = np.ones((1000, 4))
    wanted = chunked(moments, 100)(x)[0]
    assert np.array_equal(chunked(moments, 100, memory="10MB")(x)[0], wanted)
    with pytest.raises(
        ValueError, match=r"a chunk of 100 takes \d+ bytes, and memory= allows 16; chunk= makes smaller"
    ):
        chunked(moments, 100, memory=16)(Sized())


class Sized(Ranges):
    shape = (1000, 4)

    def __getitem__(self, place: Any) -> Any:
        return np.ones((1000, 4))[place]


MEASURED = """
import sys
import numpy as np, adze as az

@az.program
def total(x: az.Array[az.f64, "n d"]) -> az.f64:
    return az.sum(az.exp(-x * x))

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssFile"))) / 1000

mapped = np.memmap(sys.argv[1], np.float64, "r", shape=(-1 if False else int(sys.argv[2]), 16))
f = az.compile(total, backend="dask", over="n", memory="40MB", chunk=100_000)
f(mapped[:1000])
before = resident()
import threading
peak, done = [before], threading.Event()
def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], resident())
threading.Thread(target=watch, daemon=True).start()
value = f(mapped)
done.set()
print(peak[0] - before, float(value))
"""


@pytest.mark.rest
def test_files_larger_than_memory_stay_on_disk(tmp_path: Path) -> None:
    rows = 2_000_000  # 256 MB, in chunks of 12.8
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        for _ in range(20):
            file.write(np.ones((rows // 20, 16)).tobytes())
    found = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(rows)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    grown, value = map(float, found.stdout.split())
    assert grown < 60  # MB: two chunks, and what the process grows by anyway
    np.testing.assert_allclose(value, rows * 16 * np.exp(-1), rtol=1e-9)
