"""Pictures of builds: schedule, memory, graph of programs; and traces for a trace viewer.

Drawn with matplotlib, which the extra ``plot`` installs and only :mod:`.canvas` imports at need.
Equal builds give equal files.
"""
