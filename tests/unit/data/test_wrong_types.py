"""A column that is described wrongly is answered with the setting to change first, not with a list of lines."""

from pathlib import Path

import pytest

from hotrow.data.config import DataConfig, open_data
from hotrow.errors import InputError

ROWS = 2000


def refusal(folder: Path, **settings: object) -> str:
    lines = [f"{row % 2},{row % 7},Berlin,{1 + row % 28:02d}.03.2026 08:15" for row in range(ROWS)]
    (folder / "a.csv").write_text("\n".join(["y,user,city,when", *lines]) + "\n")
    config = DataConfig(train=str(folder / "a.csv"), label="y", ids=["user"], **settings)
    with pytest.raises(InputError) as refused:
        list(open_data(config).train.read())
    return str(refused.value)


def test_a_text_column_as_a_number_is_to_be_an_id(tmp_path: Path) -> None:
    message = refusal(tmp_path, numbers=["city"])
    assert message.startswith(
        "number column 'city' holds text ('Berlin'): name it in data.ids, or take it out of data.numbers; "
        "2,000 of the first 2,000 lines are malformed, the limit is 0.01 of the rows, as "
    )
    assert message.endswith("a.csv line 2")
    assert "data.malformed" not in message


def test_a_time_that_cannot_be_read_is_answered_with_the_format(tmp_path: Path) -> None:
    message = refusal(tmp_path, time="when")
    assert message.startswith(
        "time column 'when' has another format ('01.03.2026 08:15', '02.03.2026 08:15'): "
        'set it, as time = { column = "when", format = "%d/%m/%Y %H:%M" }; '
    )


def test_a_text_column_as_a_weight_is_told(tmp_path: Path) -> None:
    assert refusal(tmp_path, weight="city").startswith("weight column 'city' holds text ('Berlin'): name a column of ")


def test_a_few_bad_numbers_are_lines_to_mend_and_not_a_wrong_column(tmp_path: Path) -> None:
    lines = [f"{row % 2},{row % 7},{'x' if row % 20 == 0 else row}" for row in range(ROWS)]
    (tmp_path / "b.csv").write_text("\n".join(["y,user,n", *lines]) + "\n")
    config = DataConfig(train=str(tmp_path / "b.csv"), label="y", ids=["user"], numbers=["n"])
    with pytest.raises(
        InputError, match=r"^100 of the first 2,000 lines .*; mend the data .* or raise data.malformed$"
    ):
        list(open_data(config).train.read())


def test_lines_without_a_common_reason_are_shown_without_the_advice_to_allow_them_all(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("y,user\n" + "1\n" * ROWS)
    config = DataConfig(train=str(tmp_path / "c.csv"), label="y", ids=["user"])
    with pytest.raises(InputError, match=r"line 2: 1 columns? instead of 2.*mend the data or its description$"):
        list(open_data(config).train.read())
