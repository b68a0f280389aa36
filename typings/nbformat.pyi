from pathlib import Path
from typing import Any

def read(fp: str | Path, as_version: int) -> Any: ...
