"""What is wrong with a part of the data is told before a run begins, also what training would meet hours later."""

from pathlib import Path

import pytest

from hotrow.errors import InputError
from hotrow.run import load_config
from hotrow.run.preflight import preflight
from small_run import CONFIG, clicks, write_csv, write_data


def test_good_files_pass(tmp_path: Path) -> None:
    preflight(load_config(write_data(tmp_path)))


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_without_a_column_is_told(part: str, tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG.replace("test =", 'valid = "valid.csv"\ntest ='))
    write_csv(tmp_path / "valid.csv", clicks(10, seed=0)[0])
    preflight(load_config(config))
    write_csv(tmp_path / f"{part}.csv", clicks(10, seed=0)[0], labels=False)
    with pytest.raises(InputError, match=rf"{part}\.csv: there is no column 'clicked\?'; its columns are 'user id'"):
        preflight(load_config(config))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    config = write_data(tmp_path)
    (tmp_path / "test.csv").unlink()
    with pytest.raises(InputError, match=r"test\.csv: there is no such file"):
        preflight(load_config(config))


def test_a_stream_that_is_made_up_has_no_files_to_look_at(tmp_path: Path) -> None:
    config = write_data(tmp_path, '[data]\nformat = "synthetic"\n[model]' + CONFIG.split("[model]")[1])
    preflight(load_config(config))
