"""Models by name: those of the zoo, or anybody's class in a file or module; settings are checked before it is made."""

import hashlib
import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from torch import nn

from hotrow.errors import ConfigError
from hotrow.models.dcn import DCN
from hotrow.models.dcnv2 import DCNv2
from hotrow.models.deepfm import DeepFM
from hotrow.models.dien import DIEN
from hotrow.models.din import DIN
from hotrow.models.dlrm import DLRM
from hotrow.models.dnn import DNN
from hotrow.models.ffnn import FFNN
from hotrow.models.fm import FM
from hotrow.models.graphsage import GraphSAGE
from hotrow.models.lr import LR
from hotrow.models.multitask import MMoE, SharedBottom
from hotrow.models.wide_deep import WideDeep
from hotrow.models.xdeepfm import XDeepFM
from hotrow.models.youtubednn import YouTubeDNN
from hotrow.nn.inputs import InputShape
from hotrow.spec import did_you_mean

MODELS: dict[str, type[nn.Module]] = {
    "lr": LR,
    "fm": FM,
    "wide_deep": WideDeep,
    "deepfm": DeepFM,
    "dnn": DNN,
    "ffnn": FFNN,
    "dcn": DCN,
    "dcnv2": DCNv2,
    "xdeepfm": XDeepFM,
    "dlrm": DLRM,
    "din": DIN,
    "dien": DIEN,
    "youtubednn": YouTubeDNN,
    "shared_bottom": SharedBottom,
    "mmoe": MMoE,
    "graphsage": GraphSAGE,
}


WEIGHT_FIRST = frozenset(["lr", "fm", "wide_deep", "deepfm", "xdeepfm"])  # a row's first float is a linear weight


def build(name: str, shape: InputShape, settings: Mapping[str, Any] | None = None, *, base: Path = Path()) -> nn.Module:
    """Build the model of a name for inputs of this shape; a file's path is relative to `base`.

    Example:
        >>> import hotrow as hr
        >>> model = hr.models.build("deepfm", hr.InputShape(numbers=0, fields={"user": 5, "item": 5}), {"hidden": [8]})
        >>> type(model).__name__
        'DeepFM'
    """
    model = model_class(name, base)
    return model(shape, **checked(name, model, settings or {}))


def model_class(name: str, base: Path = Path()) -> type[nn.Module]:
    """A member of the zoo, or "file.py:Class" or "package.module:Class"."""
    if name in MODELS:
        return MODELS[name]
    where, colon, class_name = name.rpartition(":")
    if not colon:
        message = f"model={name!r}: there is no such model{did_you_mean(name, MODELS)}"
        raise ConfigError(f"{message}; there are {', '.join(MODELS)}; or give file.py:Class")
    module = _file(name, base / where) if where.endswith(".py") else _module(name, where)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        own = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, nn.Module)]
        is_what = f"{where} has no {class_name}" if found is None else f"{class_name} is no class of torch.nn.Module"
        raise ConfigError(f"model={name!r}: {is_what}; its modules are: {', '.join(own) or 'none'}")
    return found


def settings_of(model: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """The keywords of a model's constructor behind the shape, which comes first."""
    parameters = list(inspect.signature(model).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(f"{model.__name__}.__init__ takes no shape: write def __init__(self, shape, *, ...)")
    return {parameter.name: parameter for parameter in parameters[1:]}


def checked(name: str, model: type[nn.Module], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the constructor's annotations want them; what does not fit is told."""
    known = settings_of(model)
    named = {key for key, parameter in known.items() if parameter.kind not in _ANY_NUMBER}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    for setting, value in settings.items():
        if setting not in named and not takes_all:
            there = ", ".join(sorted(named)) or "none"
            raise ConfigError(f"{name}.{setting}={value!r}: there is no such setting; there are: {there}")
    for setting in named - settings.keys():
        if known[setting].default is inspect.Parameter.empty:
            raise ConfigError(f"{name}.{setting} is missing: give it a value")
    hints = get_type_hints(model.__init__, include_extras=True)
    return {
        setting: _fitting(f"{name}.{setting}", hints.get(setting, Any), value) for setting, value in settings.items()
    }


_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _fitting(setting: str, kind: Any, value: Any) -> Any:
    try:
        adapter = TypeAdapter(kind)
    except PydanticSchemaGenerationError:  # a type of the user's own: no file can hold one, so he made it himself
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join([setting, *(str(part) for part in fault["loc"])])
        raise ConfigError(f"{place}={fault['input']!r}: {fault['msg'].removeprefix('Value error, ')}") from None


def _file(name: str, path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"model={name!r}: there is no file {path}")
    unique = f"{path.stem}_{hashlib.blake2s(str(path).encode(), digest_size=4).hexdigest()}"
    spec = spec_from_file_location(unique, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[unique] = module  # classes look up their module there
    spec.loader.exec_module(module)
    return module


def _module(name: str, where: str) -> ModuleType:
    try:
        return import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # found, but something that it imports is missing
        raise ConfigError(
            f"model={name!r}: there is no module {error.name!r}: give module:Class or file.py:Class"
        ) from None
