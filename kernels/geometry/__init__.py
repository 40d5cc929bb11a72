"""How the rows of a matrix lie to one another: common direction, spread over directions, distance moved."""
