"""What was learned, and from what: neighbours, density, gain, dynamics, explanations, doctor, figures, report."""
