"""Pure data: what a build is, byte for byte, and what makes two builds the same.

Nothing here imports torch, does input or output beyond reading this host's own facts, or decides
whether a build fits: that is the business of ``graph``.
"""
