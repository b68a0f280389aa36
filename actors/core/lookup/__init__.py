"""Look-up: what is at an address, for who may know of it, and which addresses there are."""
