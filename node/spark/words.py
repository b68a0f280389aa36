"""Says of sinks and their tables what is known where no node has one."""

from typing import Final

from rillnode.codecs.words import Words

_STEPS: Final = {
    "export": "give the sink a new directory: it exports what the node still has",
    "file": "stop the other process, or give each a directory of its own",
    "files": "copy the directory again from where the sink writes it",
    "job": "let `rillnode run` start the job: it writes its configuration",
    "landing": "let only one job land entries in a table: `rillnode sink ls` lists the node's",
    "pipeline.busy": "`rillnode sink pause NAME`, or stop the node; then try again",
    "pipeline.exists": "name a directory that is not there yet",
    "pipeline.write": "name a directory that you may write to",
    "pipeline": "see what the job has logged; `rillnode sink show NAME` has its last error",
    "sink": "`rillnode sink ls` lists the node's sinks, `sink show NAME` tells how one is",
    "sink.install": "`rillnode doctor -c FILE` tells what else Spark needs",
    "sink.none": "a [[sink.spark]] in node.toml makes one",
    "spark": "see `rillnode pipeline --help`, and `rillnode doctor` for what Spark needs",
    "table": "`rillnode table show NAME` has a table's schema, its history and its rejects",
    "table.function": "mend the function, and resume the sink",
    "table.infer": "let the sink land some entries first: `rillnode sink ls` tells how far it is",
    "table.module": "set PYTHONPATH to where the module lies, or install it, and resume the sink",
    "table.pair": "stop the node, remove the table and its rejects, and start it",
    "view": "mend its `sql` or `slot`; `rillnode config check` tells what is wrong with them",
    "view.changed": "remove the view's directory, or give it another one",
}

WORDS: Final = Words(
    steps=_STEPS,
    event_steps={
        "sink_parked": "mend what the reason says, then `rillnode sink resume NAME`",
    },
    addresses=("sink", "sink/*"),
)
