"""Bookkeepers, reaper and Spark at once on one table: no row lost, none twice."""
