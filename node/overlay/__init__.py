"""The overlay's side of a node, and links to released Streamr nodes."""
