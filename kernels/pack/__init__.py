"""Scalars of many buffers in one array, so that diagnostics leave the device in one copy."""
