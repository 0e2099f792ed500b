"""The one error a user should see: what was wrong, where, and what to do next."""


class HarmoniumError(ValueError):
    """A mistake in what the user gave us; the command line prints it and exits with code 2."""
