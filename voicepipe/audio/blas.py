"""The threads of the library that numpy computes matrix products with."""

from __future__ import annotations

import numpy as np  # noqa: F401 -- its BLAS is found once it is loaded
from threadpoolctl import threadpool_limits

__all__ = ["compute_on_one_thread"]


def compute_on_one_thread() -> None:
    """Let this process compute each matrix product on the thread that calls for it, from now on.

    For products of over 2**18 multiplications OpenBLAS wakes a thread for each core. They stay awake for tens of ms,
    and on a busy machine the event loop waits for them as long. No product here is large enough to gain by them.
    """
    threadpool_limits(limits=1, user_api="blas")
