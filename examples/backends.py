"""One program on two backends: machine code for this machine's CPU, and kernels for an OpenCL device.

    python examples/backends.py                                     run it on the CPU
    python examples/backends.py --backend opencl [--device NAME]    run it on a device

Either way the codes of both are shown, and their results compared. One argument of ``az.compile`` is all that is
different. Without a device the script says what is missing, and shows the CPU's side.
"""

import argparse
import re

import numpy as np

import adze as az


# In f32, since not all devices have f64.
@az.program
def density(points: az.Array[az.f32, "n"], places: az.Array[az.f32, "m"], width: az.f32) -> az.Array[az.f32, "m"]:
    """A smooth histogram: for each place, how many points are near."""

    def near(place: az.Expr) -> az.Expr:
        return az.sum(az.exp(-(((points - place) / width) ** 2)))

    return az.map(near, places)


def inner_loop(llvm_ir: str) -> str:
    """The first basic block with vector arithmetic that jumps to its own beginning, without annotations."""
    blocks = [block for function in llvm_ir.split("\n}") for block in re.split(r"\n(?=[\w.]+:)", function)]
    loops = [block for block in blocks if "llvm.fma.v" in block and f"label %{block.split(':')[0]}" in block]
    lines = next(iter(loops), blocks[0]).strip().splitlines()
    return "\n".join([re.sub(r",? !.*|\s+;.*", "", line) for line in lines])


def shortest_kernel(opencl_source: str) -> str:
    """The shortest of the kernels: the one in which a thread computes a place."""
    parts = opencl_source.strip().split("\n\n")
    return min([part for part in parts if "kernel void" in part], key=len)


def compiled(device: str | None) -> dict[str, az.Compiled]:
    """The program for each backend that there is, by name. ValueError for a name that no device has."""
    found = {"llvm": az.compile(density)}
    try:
        found["opencl"] = az.compile(density, backend="opencl", device=device)
    except (ImportError, RuntimeError) as error:  # no pyopencl, no driver, or none that works
        print(f"No OpenCL here: {error}\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("llvm", "opencl"), default="llvm", help="which one runs the program")
    parser.add_argument("--device", help="a part of the name of an OpenCL device, or its index in az.devices()")
    options = parser.parse_args()

    print(f"The program:\n{az.pretty(density)}\n")
    try:
        programs = compiled(options.device)
    except ValueError as error:
        parser.error(str(error))
    print(f'backend="llvm", the inner loop as LLVM IR:\n{inner_loop(programs["llvm"].llvm_ir)}\n')
    if "opencl" in programs:
        device = programs["opencl"].backend.device
        print(f'backend="opencl" for {device}, a kernel:\n{shortest_kernel(programs["opencl"].opencl_source)}\n')

    random = np.random.default_rng(0)
    points = random.normal(0.5, 0.1, 10_000).astype(np.float32)
    places = np.linspace(0, 1, 101, dtype=np.float32)
    results = {name: program(points, places, np.float32(0.05)) for name, program in programs.items()}
    chosen = options.backend if options.backend in results else "llvm"
    result = results[chosen]
    print(f"Run with {chosen}: {np.max(result):.1f} points are near {places[np.argmax(result)]:.2f}.")
    if len(results) == 2:
        np.testing.assert_allclose(results["opencl"], results["llvm"], rtol=1e-4)
        difference = np.max(np.abs(results["opencl"] - results["llvm"]) / results["llvm"])
        print(f"The results of both agree: they differ by {difference:.1e} of their values at most.")


if __name__ == "__main__":
    main()
