"""A Spark application of your own: reads a node's streams, counts, writes the counts into another.

    spark-submit examples/spark_streams.py --url noise://127.0.0.1:4100 --node-identity HEX \
        --key-file app.key --streams 'readings*' --into counts --checkpoint checkpoint

It needs grants of its own key: `pull` on what it reads, `push` and `create` on what it writes. Run
without `spark-submit` it starts Spark in its own process, or, where `SPARK_REMOTE` names a server,
is a client of Spark Connect. It ends when it has read what is there.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Count what is new of every stream, batch by batch, and append the counts to a stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "node-identity", "key-file", "streams", "into", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    # Workers must run the interpreter that has rillnode.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("counts").getOrCreate()
    connection = {
        "url": arguments.url,
        "node_identity": arguments.node_identity,
        "key_file": arguments.key_file,
    }
    rows = (
        spark.readStream.format("rillnode")
        .options(**connection, streams=arguments.streams, maxBytesPerTrigger=64_000_000)
        .load()
    )

    def write_counts(batch: DataFrame, _: int) -> None:
        counts = batch.groupBy("stream").count().selectExpr("to_json(struct(*)) AS data")
        writer = counts.write.format("rillnode").mode("append")
        writer.options(**connection, stream=arguments.into).save()

    query = (
        rows.writeStream.foreachBatch(write_counts)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
