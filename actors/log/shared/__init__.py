"""A store on several machines: one log of frames in shards, and views of the shards in use."""
