"""Names of the loop IR as identifiers of C that a person recognises.

Two names never become the same. A name that C could not have, or that OpenCL gives a meaning (a keyword, a type, a
macro, a function), is changed as little as possible; so are the names that helper functions have, which all end in
a type or in an address space.

>>> [c_name(name) for name in ("x", "max", "max_", "α", "weights.0", "sum_double")]
['x', 'max_', 'max__', '_0x3b1_', 'weights_0x2e_0', 'sum_double_']
"""

from __future__ import annotations

import re

# What C cannot have in a name becomes its code, `_0x3b1_`; so does the underscore of what only looks like a code.
_ODD = re.compile(r"[^A-Za-z0-9_]|^[0-9]|_(?=0x)")

_RESERVED = re.compile(
    r"""
    # keywords and types
      auto | break | case | const | continue | default | do | else | enum | extern | float | for | goto | if
    | inline | register | restrict | return | signed | sizeof | static | struct | switch | typedef | union
    | unsigned | void | volatile | while | bool | char | double | half | int | long | short | uchar | uint | ulong
    | ushort | quad | complex | imaginary | size_t | ptrdiff_t | intptr_t | uintptr_t | asm | typeof | global
    | local | constant | private | generic | kernel | read_only | write_only | read_write | pipe | uniform | channel
    | event_t | sampler_t | queue_t | clk_event_t | reserve_id_t | ndrange_t | true | false | NULL | main | printf
    | linux | unix | i386
    # functions of numbers
    | acos | acosh | acospi | asin | asinh | asinpi | atan | atan2 | atan2pi | atanh | atanpi | cbrt | ceil
    | copysign | cos | cosh | cospi | erf | erfc | exp | exp10 | exp2 | expm1 | fabs | fdim | floor | fma | fmax
    | fmin | fmod | fract | frexp | hypot | ilogb | ldexp | lgamma | lgamma_r | log | log10 | log1p | log2 | logb
    | mad | maxmag | minmag | modf | nan | nextafter | pow | pown | powr | remainder | remquo | rint | root | rootn
    | round | rsqrt | sin | sincos | sinh | sinpi | sqrt | tan | tanh | tanpi | tgamma | trunc | abs | abs_diff
    | add_sat | clamp | clz | ctz | hadd | mad24 | mad_hi | mad_sat | max | min | mul24 | mul_hi | popcount | rhadd
    | rotate | sub_sat | upsample | degrees | radians | mix | sign | smoothstep | step | cross | distance | dot
    | fast_distance | fast_length | fast_normalize | length | normalize | all | any | bitselect | isequal | isfinite
    | isgreater | isgreaterequal | isinf | isless | islessequal | islessgreater | isnan | isnormal | isnotequal
    | isordered | isunordered | select | signbit | shuffle | shuffle2 | vec_step | barrier | mem_fence | prefetch
    | read_mem_fence | write_mem_fence | wait_group_events | work_group_barrier
    # other names in the kernels that are written here
    | within | fail | failure | failed | at | width | rest\d*
    # families
    | __\w*                                                              # the implementation's
    | (u?(char|short|int|long)|bool|float|double|half)(\d+(x\d+)?)         # vector and matrix types
    | image\w*_t
    | (as|convert|vload|vstore|atomic|atom|native|half|async|get|read|write|work_group|sub_group)_\w*
    | (vload|vstore)\w*
    | (CL|CLK|M|FP|FLT|DBL|HALF|INT|UINT|LONG|ULONG|SHRT|USHRT|CHAR|SCHAR|UCHAR|HUGE|ATOMIC|cl)_\w*
    | INFINITY | NAN | MAXFLOAT | ATOMIC\w* | FLT\w* | DBL\w*
    | \w+_(bool|int|long|float|double|global|local|own|all)                # the helper functions'
    """,
    re.VERBOSE,
)


def identifier(name: str) -> str:
    """A name of letters, digits and underscores; different names have different ones."""
    return _ODD.sub(lambda match: f"_0x{ord(match[0]):x}_", name)


def c_name(name: str) -> str:
    """The identifier of C for a name of the loop IR; different names have different ones."""
    plain = identifier(name)
    return plain + "_" if _RESERVED.fullmatch(plain.rstrip("_")) else plain
