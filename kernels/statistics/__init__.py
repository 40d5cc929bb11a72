"""Statistics of many float matrices at once: by column and as a whole."""
