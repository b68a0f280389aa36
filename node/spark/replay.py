"""Makes silver, gold and views of silver anew from bronze, and puts them in place of the old ones.

Readers see the old tables until the new ones are whole. A replay that dies leaves the old ones as
they are; the next one begins again.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from pyspark.sql import SparkSession

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.derived import Derived, own_tables
from rillnode.node.spark.files import local_path
from rillnode.node.spark.job_config import DerivedConfig
from rillnode.node.spark.tables import LAG

_NEW: Final = ".replay"
_OLD: Final = ".replaced"


def replay(
    session: SparkSession, config: DerivedConfig, drain_file: Path, say: Callable[[str], None]
) -> None:
    """Make the tables anew; returns when they are in their place.

    Only local tables: an object store cannot put a directory in the place of another.

    Raises:
        ConfigError: a table is not local.
        StoreError: `pipeline.busy`, a job is making these tables.
    """
    silver, checkpoint = _local(config.silver_dir), _local(config.checkpoint_dir)
    gold = None if config.gold_dir is None else _local(config.gold_dir)
    views = [_local(one.dir) for one in config.views]
    places = [silver, *views] if gold is None else [silver, gold, *views]
    if not checkpoint.is_relative_to(silver):
        places.append(checkpoint)
    for place in places:
        shutil.rmtree(_beside(place, _NEW), ignore_errors=True)
    fresh = replace(
        config,
        silver_dir=str(_beside(silver, _NEW)),
        gold_dir=None if gold is None else str(_beside(gold, _NEW)),
        views=tuple(
            replace(one, dir=str(_beside(place, _NEW)))
            for one, place in zip(config.views, views, strict=True)
        ),
        checkpoint_dir=str(
            _beside(silver, _NEW) / checkpoint.relative_to(silver)
            if checkpoint.is_relative_to(silver)
            else _beside(checkpoint, _NEW)
        ),
    )
    with own_tables(config):
        derived = Derived(session, fresh, drain_file)
        derived.run_once(say)
        derived.finish()
        if gold is not None and (gold / LAG.name).exists():
            # The lag was told by the job that landed bronze; nothing can tell it again.
            shutil.copytree(gold / LAG.name, _beside(gold, _NEW) / LAG.name)
        for place in places:
            _put_in_place(place)
            say(f"made anew: {place}")


def _put_in_place(place: Path) -> None:
    old, new = _beside(place, _OLD), _beside(place, _NEW)
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    if new.exists():  # without any bronze there is nothing to make
        new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def _beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)


def _local(location: str) -> Path:
    path = local_path(location)
    if path is None:
        raise ConfigError("spark.table", f"{location} is not local; only local tables are replayed")
    return path
