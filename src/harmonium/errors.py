"""The one error a user should see: what was wrong, where, and what to do next."""


class HarmoniumError(ValueError):
    """A mistake in what the user gave us; the command line prints it and exits with code 2."""


class Together(HarmoniumError):
    """An error that another process tells of already."""


class Stopped(BaseException):
    """Training was told to stop, and says how to go on; the command line prints it and exits with `code`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
