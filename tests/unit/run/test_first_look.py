"""What is wrong with a part of the data is told before a run begins, also what training would meet hours later."""

from pathlib import Path

import pytest

from hotrow.errors import InputError
from hotrow.run import Run, load_config
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
    with pytest.raises(InputError, match=rf"{part}\.csv: there is no label column 'clicked\?'; its columns are"):
        preflight(load_config(config))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    config = write_data(tmp_path)
    (tmp_path / "test.csv").unlink()
    with pytest.raises(InputError, match=r"test\.csv: there is no such file"):
        preflight(load_config(config))


def test_a_stream_that_is_made_up_has_no_files_to_look_at(tmp_path: Path) -> None:
    config = write_data(tmp_path, '[data]\nformat = "synthetic"\n[model]' + CONFIG.split("[model]")[1])
    preflight(load_config(config))


POSITIVE = CONFIG.replace('label = "clicked?"', 'label = { column = "clicked?", positive = "%s" }')


def with_text_labels(folder: Path, positive: str, words: tuple[str, str] = ("No", "Yes")) -> Path:
    config = write_data(folder, POSITIVE % positive)
    for name in ("train", "test"):
        rows = [[words[int(row[0])], *row[1:]] for row in clicks(300, seed=1)[0]]
        write_csv(folder / f"{name}.csv", rows)
    return config


def test_a_positive_value_that_never_occurs_is_an_error_with_the_values_there_are(tmp_path: Path) -> None:
    told = (
        r"label.positive='yes': none of the 300 rows has it \(did you mean Yes\?\); "
        r"column 'clicked\?' holds '(Yes|No)', '(Yes|No)': name one of these values"
    )
    with pytest.raises(InputError, match=told):
        Run(load_config(with_text_labels(tmp_path, "yes"), [f"run.folder={tmp_path / 'runs'}"]))
    assert not (tmp_path / "runs").exists()


def test_a_positive_value_of_a_column_of_numbers_that_never_occurs_is_an_error(tmp_path: Path) -> None:
    config = with_text_labels(tmp_path, "3", ("0", "1"))
    with pytest.raises(InputError, match=r"label.positive='3': none of the 300 rows has it; column .* holds '(0|1)', "):
        Run(load_config(config, [f"run.folder={tmp_path / 'runs'}"]))


def test_a_positive_value_in_the_last_row_alone_is_enough(tmp_path: Path) -> None:
    config = with_text_labels(tmp_path, "Yes", ("No", "No"))
    with (tmp_path / "train.csv").open("a", encoding="utf-8") as file:
        file.write("Yes,u1,2,1.0\n")
    with Run(load_config(config, [f"run.folder={tmp_path / 'runs'}"])) as run:
        assert run.samples_expected is None
