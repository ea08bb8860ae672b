"""What each shard of a cluster has of a table with a disk is checked before the cluster is started."""

from pathlib import Path

import pytest

import hotrow as hr
from hotrow.errors import ConfigError
from hotrow.runtime.open_backend import check_shares


def test_a_share_without_room_for_rows_names_the_settings_of_the_user(tmp_path: Path) -> None:
    table = hr.Table(name="user", dim=16, capacity="40MB", disk="200MB", path=tmp_path)
    check_shares(hr.Ray(shards=1), {"user": table})
    said = (
        r"table 'user', capacity='40MB', disk='200MB': each of engine.shards=2 has an equal part of both, and for it: "
    )
    with pytest.raises(ConfigError, match=said + r"Table.capacity='20000000B': leaves .* raise capacity to 2\d\.\d MB"):
        check_shares(hr.Ray(shards=2), {"user": table})
    check_shares(hr.Ray(shards=2, shared_rows=False), {"user": table})
    check_shares(hr.Ray(shards=2), {"user": hr.Table(name="user", dim=16, capacity="60MB")})
