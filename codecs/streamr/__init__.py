"""Streamr: control, message and network layers, signatures, encryption and key exchange."""
