"""The overlay: nodes that share streams, each linked to a few others, and their tracker."""
