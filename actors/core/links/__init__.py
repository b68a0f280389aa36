"""Connections: one actor per link, in the dialect that its peer speaks."""
