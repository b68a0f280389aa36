"""Moves bytes: TCP, WebSocket, memory; and clocks."""
