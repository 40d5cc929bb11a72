"""The rules between leaves, in three families: walk (runtime, data, encoder), learning, money. See `diag_rules`."""
