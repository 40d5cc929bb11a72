"""Numbers of many tensors in one array, so that diagnostics leave the device in one copy."""
