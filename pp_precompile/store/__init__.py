"""Bytes on disk: content-addressed blobs, program entries and builds, published atomically.

Knows digests and the contract's structs, never what a program means, and never imports torch.
docs/format.md is the specification of what lies where.
"""
