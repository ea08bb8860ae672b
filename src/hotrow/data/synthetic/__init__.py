"""A made-up stream of clicks in the shape of Criteo's, whose best possible AUC is known."""

from hotrow.data.synthetic.config import SyntheticConfig
from hotrow.data.synthetic.source import SyntheticSource, TeacherQuality, best, write_parquet

__all__ = ["SyntheticConfig", "SyntheticSource", "TeacherQuality", "best", "write_parquet"]
