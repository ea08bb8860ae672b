"""A stand-in for pyarrow, for measurements that read no files on machines where it cannot be installed.

Modules that read files import pyarrow when they are loaded. With the stand-in they load, and fail where they use it.
Import this before anything of Hotrow.
"""

import sys
from importlib.util import find_spec
from unittest.mock import MagicMock

MODULES = ("", ".compute", ".csv", ".dataset", ".fs", ".json", ".parquet")

if find_spec("pyarrow") is None:
    sys.modules.update({f"pyarrow{name}": MagicMock(name=f"pyarrow{name}") for name in MODULES})
