"""The glue to torchtitan: configuration, trainer, splitting, CPU platform.

Imports torchtitan freely and compiles nothing itself. On a machine without an accelerator
``cpu_platform.enable`` must run before any other module of this package is imported.
"""
