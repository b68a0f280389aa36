"""The embedded store: logs, records and positions in RocksDB."""
