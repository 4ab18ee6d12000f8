"""From a module to stored programs: trace, cut, make portable, compile, serialize.

Works from metadata alone: no real weight is needed, and nothing here runs training.
"""
