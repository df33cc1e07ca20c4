"""The page that says what functions of NumPy, SciPy, JAX and PyTorch are called here.

    python examples/names.py            print docs/names.md
    python examples/names.py --write    write it

What NumPy's functions are on expressions is looked up; the tables for others are written here.
"""

import sys
from pathlib import Path

import numpy as np

import adze as az
from adze.core.numpy_calls import NUMPY
from adze.core.primitive import MEANINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "names.md"

HEAD = """\
# What is it called here?

A table of names for those who come from NumPy, SciPy, JAX or PyTorch. (`python examples/names.py --write` makes this
page.) Where a program is written as NumPy's users write it, NumPy's own functions do: on an expression `np.exp(x)` is
`az.exp(x)`. Arguments are NumPy's where a function of NumPy has that name, and JAX's where one of JAX has it.
"""

OTHERS = """\
## JAX

| there | here |
|---|---|
| `jax.jit` | `az.compile` |
| `jax.grad`, `jax.value_and_grad (has_aux)` | `az.grad`, `az.value_and_grad` (has_aux) |
| `jax.vjp`, `jax.jvp`, `jax.linearize` | `az.vjp`, `az.jvp`, `az.linearize` |
| `jax.jacfwd`, `jax.jacrev`, `jax.hessian` | `az.jacobian`, `az.hessian` |
| `jax.vmap` | `az.vmap`; `az.map` along first axes |
| `jax.checkpoint` | `az.checkpoint`, and checkpoint= of loops |
| `jax.custom_jvp`, `jax.custom_vjp` | `az.custom_jvp`, `az.custom_vjp` |
| `jax.pure_callback` | `az.foreign` |
| `jax.ffi.ffi_call` | `az.operation`, with `az.c_function` |
| `jax.experimental.io_callback` | `az.operation(..., effects=True)` |
| `jax.debug.print` | `az.inspect` |
| `jax.lax.stop_gradient` | `az.stop_gradient` |
| `jax.lax.cond` | `az.cond(test, then, orelse)`, `then` and `orelse` without parameters |
| `jax.lax.switch` | `az.cond`, one in the other |
| `jax.lax.fori_loop`, `jax.lax.while_loop` | `az.fori_loop`, `az.while_loop` |
| `jax.lax.scan` | `az.scan_loop`; `az.scan` for an associative operator |
| `jax.lax.associative_scan` | `az.scan` |
| `jax.lax.reduce` | `az.reduce` |
| `jax.lax.dynamic_slice` | `x[i:i + n]` |
| `jax.lax.dynamic_update_slice`, `x.at[i].set(v)` | `az.update(x, i, v)` |
| `x.at[i].add(v)`, `jax.ops.segment_sum` | `az.histogram` |
| `jax.lax.conv_general_dilated` | `az.stencil`, or sums over windows |
| `jax.lax.top_k` | `az.sort(x, descending=True)[:k]` |
| `jax.nn.relu`, `jax.nn.gelu`, `jax.nn.softplus` | `az.relu`, `az.gelu`, `az.softplus` |
| `jax.nn.sigmoid`, `jax.nn.log_sigmoid` | `az.sigmoid`, `az.log_sigmoid` |
| `jax.nn.softmax`, `jax.nn.one_hot` | `az.softmax`, `az.one_hot` |
| `jax.nn.logsumexp`, `jax.scipy.special.logsumexp` | `az.logsumexp` |
| `jax.random` | `az.random`: keys, shapes and names are the same |
| `jax.random.randint`, `jax.random.t` | `az.random.integers`, `az.random.student_t` |
| `jax.make_jaxpr` | `print(az.pretty(f))` |
| `jnp.float32(x)`, `x.astype(jnp.float32)` | `az.array(x, az.f32)`, `x.astype(az.f32)` |
| `jax.tree_util` | structures are arguments and results as they are |
| `jax.device_put` | `az.to_device` |

## PyTorch

| there | here |
|---|---|
| `torch.compile` | `az.compile` |
| `loss.backward()`, `torch.autograd.grad` | `az.grad`, `az.value_and_grad` |
| `torch.func.vjp`, `torch.func.jvp`, `torch.func.vmap` | `az.vjp`, `az.jvp`, `az.vmap` |
| `torch.autograd.functional.jacobian`, `hessian` | `az.jacobian`, `az.hessian` |
| `torch.no_grad`, `x.detach()` | `az.stop_gradient` |
| `torch.utils.checkpoint` | `az.checkpoint` |
| `torch.autograd.Function` | `az.custom_vjp`; `az.torch(f)` makes one of a program |
| `torch.cat`, `torch.stack` | `az.concatenate`, `az.stack` |
| `x.view`, `x.permute`, `x.unsqueeze`, `x.expand` | `az.reshape`, `az.transpose`, `az.expand_dims`, `az.broadcast_to` |
| `torch.gather` | `az.take_along_axis` |
| `torch.index_add`, `torch.scatter_add` | `az.histogram` |
| `torch.bmm`, `torch.matmul` | `a @ b` |
| `torch.clamp` | `az.clip` |
| `torch.nn.functional.relu`, `gelu`, `softplus` | `az.relu`, `az.gelu`, `az.softplus` |
| `torch.nn.functional.softmax`, `one_hot` | `az.softmax`, `az.one_hot` |
| `torch.nn.functional.pad` | `az.pad` |
| `torch.nn.functional.conv2d`, `unfold` | `az.stencil`, or sums over windows |
| `torch.rand`, `torch.randn`, `torch.distributions` | `az.random`, where derivatives are those of `rsample` |
| `torch.where`, `torch.cumsum`, `torch.sort` | `az.where`, `az.cumsum`, `az.sort` |
| `x.to(device)` | `az.to_device` |
| `x.to(torch.float32)`, `torch.tensor(3, dtype=torch.float32)` | `x.astype(az.f32)`, `az.array(3, az.f32)` |

## SciPy

| there | here |
|---|---|
| `scipy.special.erf`, `erfc`, `gammaln`, `digamma` | `az.erf`, `az.erfc`, `az.lgamma`, `az.digamma` |
| `scipy.special.expit`, `log_expit` | `az.sigmoid`, `az.log_sigmoid` |
| `scipy.special.logsumexp`, `softmax` | `az.logsumexp`, `az.softmax` |
| `scipy.linalg.solve_triangular`, `cho_solve` | `az.linalg.solve_triangular`, `az.linalg.cho_solve` |
| `scipy.linalg.expm`, `eigh` | `az.linalg.expm`, `az.linalg.eigh` |
| `scipy.linalg.solve`, `inv`, `det` | `az.linalg.solve`, `az.linalg.inv`, `az.linalg.det` |
| `np.random`, `scipy.stats` distributions | `az.random` |
| `scipy.signal.convolve`, `correlate` | `az.convolve`, `az.correlate` |
| scipy.ndimage filters | `az.stencil` |
| scipy.sparse products | `az.histogram` over the entries; `az.sparse_jacobian` gives SciPy's matrices |
| scipy.sparse.linalg.LinearOperator | `az.linear_operator` |
| anything else of NumPy or SciPy | `az.operation`, with a rule for its derivative |
"""


def numpy_names() -> dict[str, str]:
    """NumPy's functions that may be called on expressions, and what they are."""
    public = {id(getattr(az, name)): f"az.{name}" for name in az.__all__}
    public |= {id(getattr(az.linalg, name)): f"az.linalg.{name}" for name in az.linalg.__all__}
    found = {}
    for function, ours in {**MEANINGS, **NUMPY}.items():
        name = function.__name__
        for module, prefix in ((np, "np"), (np.linalg, "np.linalg")):
            if getattr(module, name, None) is function:
                found[f"{prefix}.{name}"] = public.get(id(ours), "")
                break
    return found


def page() -> str:
    """The page, as Markdown."""
    known = numpy_names()
    same = [name for name, ours in sorted(known.items()) if ours in ("", name.replace("np.", "az.", 1))]
    other = {name: ours for name, ours in sorted(known.items()) if name not in same}
    listed = " ".join([name.removeprefix("np.") for name in same])
    parts = [
        HEAD,
        "## NumPy",
        "These may be called on expressions, under their own name:",
        f"`{listed}`",
        "and these have another name here:",
        "\n".join(["| there | here |", "|---|---|", *[f"| `{there}` | `{here}` |" for there, here in other.items()]]),
        OTHERS,
    ]
    return "\n\n".join([part.strip() for part in parts]) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
