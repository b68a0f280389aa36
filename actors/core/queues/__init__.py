"""Work queues: each entry of a stream to one worker, which says what has become of it."""
