"""Market orders against ten displayed levels, in exact integers: ticks, lots, half-ticks."""
