"""Txlogs that every version must go on reading. They are never made again, only added to."""
