"""Passes from nests to nests, whose points are run in no order yet: which of them are one."""
