"""The one error class for mistakes that a user can mend."""


class InputError(ValueError):
    """Input that cannot be used: a file, a row, a value, a setting.

    The message is one line: the place, what was found and what was expected. The command line prints it without a
    traceback and exits with status 2; the API raises it.
    """
