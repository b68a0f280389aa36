"""NextGraph's side of a node, and its client."""
