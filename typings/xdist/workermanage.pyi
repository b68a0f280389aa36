from typing import Any

import pytest

class WorkerController:
    config: pytest.Config
    workerinput: dict[str, Any]
