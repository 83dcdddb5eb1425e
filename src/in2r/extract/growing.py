"""An npy file that grows by rows and can be continued after a kill."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from in2r.files import naming

DTYPE = np.dtype("<f2")


def append_rows(path: Path, values: NDArray[Any], rows: int) -> None:
    """Append float16 rows to an npy file and bring them to disk.

    Args:
        path: the file; made when `rows` is 0.
        values: (n, ...), of the shape of the rows that are there.
        rows: how many of its rows count; what a killed process wrote after them is written over.
    """
    with naming(path), path.open("r+b" if rows else "w+b") as file:
        shape = (rows + len(values), *values.shape[1:])
        # NumPy leaves room in a header, so its size is the same for any number of rows
        npy.write_array_header_1_0(file, {"descr": DTYPE.str, "fortran_order": False, "shape": shape})
        file.seek(rows * int(np.prod(values.shape[1:])) * DTYPE.itemsize, os.SEEK_CUR)
        file.truncate()
        file.write(np.ascontiguousarray(values, DTYPE).data)
        file.flush()
        os.fsync(file.fileno())
