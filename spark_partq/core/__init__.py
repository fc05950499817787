"""Pure parts: no I/O, no clock, no Spark, Arrow or Delta. Everything here is a function of its arguments."""
