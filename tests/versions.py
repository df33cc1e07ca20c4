"""What NumPy's newest version gives, by every version that is supported: programs mean the same with all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

# Of integers and truth values these were floats before NumPy 2.1.
_WHOLE = (np.floor, np.ceil, np.trunc, np.fix)
_OLD = np.lib.NumpyVersion(np.__version__) < "2.1.0"


def newest(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gives of NumPy's arrays what it gives in the newest version."""

    def apply(x: Any) -> Any:
        if _OLD and isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "ib":
            return x
        return function(x)

    return apply if function in _WHOLE else function
