"""Checks over a build: does it fit together, this host and the job that wants it.

Never imports torch: the same checks answer on a login node and at the start of every rank.
"""
