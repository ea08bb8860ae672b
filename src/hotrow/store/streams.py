"""The stream of a table: the number that, with a row's key, decides the row's first value."""

import hashlib


def first_value_stream(seed: int, table: str) -> int:
    """64 bits from seed and table name, the same on every machine."""
    digest = hashlib.blake2b(table.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")
