"""The HTTP door's forms: positions as text, entries as CBOR, CloudEvents."""
