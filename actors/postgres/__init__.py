"""The engine of a shared log on PostgreSQL: frames are rows, and a commit is what confirms them."""
