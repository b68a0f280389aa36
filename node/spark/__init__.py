"""The Spark plug-in: streams in tables, with Spark or without, and streams as Spark reads them."""
