"""The command line: ``pp-precompile COMMAND …``. Parses, calls one library function, prints."""

from pp_precompile.cli.main import main, main_entry

__all__ = ["main", "main_entry"]
