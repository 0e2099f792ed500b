"""How the settings of a training are chosen, and what it will cost."""
