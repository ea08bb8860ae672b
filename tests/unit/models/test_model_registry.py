"""Models by name: the zoo, a user's own, and what is told where a name or a setting is wrong."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hotrow.errors import ConfigError
from hotrow.models import MODELS, build
from hotrow.models.deepfm import DeepFM
from hotrow.models.registry import settings_of
from hotrow.models.youtubednn import YouTubeDNN
from hotrow.nn.inputs import InputShape
from unit.models.made_inputs import FIELDS, made

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
OWN = """
from torch import Tensor, nn

class Tiny(nn.Module):
    def __init__(self, shape, *, hidden: int = 4, depth=1, kernel: "Kernel | None" = None) -> None:
        super().__init__()
        self.hidden, self.depth, self.kernel = hidden, depth, kernel
        self.top = nn.Linear(shape.flat, 1)

    def forward(self, x) -> Tensor:
        return self.top(x.flat).squeeze(1)

class Kernel:
    pass

class Anything(nn.Module):
    def __init__(self, shape, **settings):
        super().__init__()
        self.settings = settings

class NoShape(nn.Module):
    def __init__(self, *, hidden=3):
        super().__init__()

class NoModule:
    pass

number = 5
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own_models.py"
    path.write_text(OWN)
    return path


def refused(sentence: str, name: str, settings: dict[str, Any] | None = None, **more: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        build(name, FIELDS, settings, **more)


def test_a_name_gives_a_model_with_its_settings() -> None:
    model = build("deepfm", FIELDS, {"hidden": [7], "dropout": 0.5})
    assert isinstance(model, DeepFM)
    assert [layer.out_features for layer in model.deep if isinstance(layer, torch.nn.Linear)] == [7, 1]


def test_an_unknown_name_lists_the_known_ones() -> None:
    nearest = "model='deepfn': there is no such model (did you mean deepfm?)"
    refused(f"{nearest}; there are {', '.join(MODELS)}; or give file.py:Class", "deepfn")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"hiden": 3},
            "deepfm.hiden=3: there is no such setting; there are: activation, batch_norm, data_norm, dropout, hidden",
        ),
        ({"hidden": "wide"}, "deepfm.hidden='wide': Input should be a valid tuple"),
        ({"hidden": [400, 0]}, "deepfm.hidden.1=0: Input should be greater than or equal to 1"),
        ({"hidden": [400, 65_537]}, "deepfm.hidden.1=65537: Input should be less than or equal to 65536"),
        ({"hidden": [True]}, "deepfm.hidden.0=True: must be a whole number"),
        ({"hidden": [2.5]}, "deepfm.hidden.0=2.5: must be a whole number"),
        ({"dropout": 1.0}, "deepfm.dropout=1.0: Input should be less than 1"),
        ({"dropout": -0.1}, "deepfm.dropout=-0.1: Input should be greater than or equal to 0"),
        ({"dropout": float("nan")}, "deepfm.dropout=nan: Input should be"),
        ({"dropout": "much"}, "deepfm.dropout='much': Input should be a valid number"),
        ({"batch_norm": "yes"}, "deepfm.batch_norm='yes': Input should be a valid boolean"),
        (
            {"activation": "gelu"},
            "deepfm.activation='gelu': Input should be 'relu', 'tanh', 'sigmoid', 'prelu' or 'dice'",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_told(settings: dict[str, Any], sentence: str) -> None:
    refused(sentence, "deepfm", settings)


@pytest.mark.parametrize("settings", [{"hidden": [1, 65_536]}, {"dropout": 0}, {"dropout": 0.999}, {"hidden": []}])
def test_settings_at_their_bounds_are_welcome(settings: dict[str, Any]) -> None:
    assert build("deepfm", FIELDS, settings)(made(FIELDS, dtype=torch.float32)).shape == (6,)


def test_a_model_without_settings_says_so() -> None:
    refused("lr.hidden=3: there is no such setting; there are: none", "lr", {"hidden": 3})


def test_a_setting_that_must_be_given_is_asked_for() -> None:
    shape = InputShape(0, {"node": 4}, {"hop1": 4})
    with pytest.raises(ConfigError, match=r"graphsage\.classes is missing: give it a value"):
        build("graphsage", shape)


def test_settings_that_may_be_none_are_checked_too() -> None:
    shape = InputShape(2, {"item": 4}, {"seen": 4})
    with pytest.raises(ConfigError, match=r"youtubednn\.log_frequency.*=-1: Input should be greater than"):
        build("youtubednn", shape, {"log_frequency": -1})
    model = build("youtubednn", shape, {"log_frequency": 1, "hidden": (4,)})
    assert isinstance(model, YouTubeDNN)
    assert model.log_frequency == 1


def test_a_class_of_a_file_stands_in(own: Path) -> None:
    model: Any = build(f"{own}:Tiny", FIELDS, {"hidden": 9, "depth": "any"})
    assert (model.hidden, model.depth) == (9, "any")
    assert model(made(FIELDS, dtype=torch.float32)).shape == (6,)
    assert type(model).__module__ in sys.modules


def test_a_relative_file_starts_at_the_base(own: Path) -> None:
    assert build("own_models.py:Tiny", FIELDS, base=own.parent)
    refused("there is no file", "own_models.py:Tiny")


def test_a_class_of_a_module_stands_in(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(own.parent)
    assert type(build("own_models:Tiny", FIELDS)).__module__ == "own_models"
    monkeypatch.delitem(sys.modules, "own_models")


def test_the_users_settings_are_checked_by_his_annotations(own: Path) -> None:
    refused("Tiny.hidden='wide': Input should be a valid integer", f"{own}:Tiny", {"hidden": "wide"})
    refused("Tiny.width=3: there is no such setting; there are: depth, hidden, kernel", f"{own}:Tiny", {"width": 3})
    kernel = object()
    assert build(f"{own}:Tiny", FIELDS, {"kernel": kernel}).kernel is kernel  # a type of his own is his business
    assert build(f"{own}:Anything", FIELDS, {"a": 1, "b": "c"}).settings == {"a": 1, "b": "c"}


def test_classes_that_cannot_serve_are_told(own: Path) -> None:
    refused("NoModule is no class of torch.nn.Module; its modules are: Tiny, Anything, NoShape", f"{own}:NoModule")
    refused("number is no class of torch.nn.Module", f"{own}:number")
    refused("has no Missing; its modules are: Tiny, Anything, NoShape", f"{own}:Missing")
    refused("NoShape.__init__ takes no shape: write def __init__(self, shape, *, ...)", f"{own}:NoShape")


def test_a_module_that_is_not_there_is_told_apart_from_one_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused("model='nowhere.at_all:Tiny': there is no module 'nowhere'", "nowhere.at_all:Tiny")
    (tmp_path / "needy_models.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        build("needy_models:Tiny", FIELDS)


@pytest.mark.parametrize("name", MODELS)
def test_the_docs_name_every_model_and_setting(name: str) -> None:
    text = DOCS.read_text()
    assert f"| `{name}` |" in text
    assert [setting for setting in settings_of(MODELS[name]) if f"`{setting}`" not in text] == []


def test_the_model_that_the_docs_write_works(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(# mine\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    assert build("mine.py:Mine", FIELDS, {"hidden": 8}, base=tmp_path)(made(FIELDS, dtype=torch.float32)).shape == (6,)
