"""What can go wrong, by whose fault it is.

HotrowError
├── ConfigError    a setting that cannot be: names the field, the value and the remedy
├── InputError     arrays or ids that do not fit: shape, type, layout
├── FileError      a file that cannot be written: no room, no permission
├── SegmentError   a segment that cannot be used: in use, of another table, damaged, no room
└── DiskError      a disk file of rows that cannot be used: of another table, damaged, unreadable
    ├── DiskFullError    rows that do not fit: its capacity is used, or its file system is full
    └── LockedFileError  another process has it open

Anything else that escapes is a bug of ours.
"""


class HotrowError(Exception):
    """Base of all errors that Hotrow raises on purpose; the message is one sentence.

    Example:
        >>> from hotrow import HotrowError, Table
        >>> try:
        ...     Table(dim=0)
        ... except HotrowError as error:
        ...     print(error)
        Table.dim=0: Input should be greater than 0
    """


class ConfigError(HotrowError, ValueError):
    """Raised for a setting with a wrong value; the message names field, value and remedy.

    Example:
        >>> from hotrow import ConfigError, GBA
        >>> try:
        ...     GBA(tolerance=-1)
        ... except ConfigError as error:
        ...     print(error)
        GBA.tolerance=-1: Input should be greater than or equal to 0
    """


class InputError(HotrowError, ValueError):
    """Raised for arrays, ids or files that do not fit: shape, type, layout.

    Example:
        >>> from hotrow import InputError
        >>> from hotrow.metrics import auc
        >>> try:
        ...     auc([0, 2], [0.1, 0.2])
        ... except InputError as error:
        ...     print(error)
        labels hold 2 (1 in all are odd): each must be 0 or 1
    """


class FileError(HotrowError):
    """A file that cannot be written."""


class SegmentError(HotrowError):
    """A segment of row memory that cannot be used."""


class DiskError(HotrowError):
    """A disk file of rows that cannot be used."""


class DiskFullError(DiskError):
    """Rows that do not fit into a disk file: its capacity is used, or its file system is full."""


class LockedFileError(DiskError):
    """A disk file of rows that another process has open."""
