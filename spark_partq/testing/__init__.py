"""How the package is tried: a simulation of everything at once, faults of real processes, checks of what was delivered."""
