"""How programs are shown: records of terms, what is recognised in them, names, and the printers themselves."""
