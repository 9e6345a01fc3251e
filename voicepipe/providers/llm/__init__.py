"""Language model vendors, one module each."""
