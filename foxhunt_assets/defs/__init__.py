"""Empty on purpose: `dg check defs` wants this package; the definitions are named in definitions.py."""
