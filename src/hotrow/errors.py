"""What can go wrong, by whose fault it is.

HotrowError
├── ConfigError    a setting that cannot be: names the field, the value and the remedy
├── InputError     arrays or ids that do not fit: shape, type, layout
├── FileError      a file that cannot be written: no room, no permission
└── SegmentError   a segment that cannot be used: in use, of another table, damaged, no room

Anything else that escapes is a bug of ours.
"""


class HotrowError(Exception):
    """Expected trouble, told in one sentence."""


class ConfigError(HotrowError, ValueError):
    """A setting that cannot be."""


class InputError(HotrowError, ValueError):
    """Arrays or ids that do not fit."""


class FileError(HotrowError):
    """A file that cannot be written."""


class SegmentError(HotrowError):
    """A segment of row memory that cannot be used."""
