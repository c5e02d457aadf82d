"""
Real processes for hours, with everything on, killed now and then, and an account of every row in the end.
"""
