"""
The demo: the whole queue on this machine for a minute, and an account of every row.

It starts processes and watches them from outside; no part of the queue knows that it is watched. As a program it
reads the clock and the environment itself.
"""
