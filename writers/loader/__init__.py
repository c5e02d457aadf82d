"""Lines and files of data as rows: formats, types and change streams."""
