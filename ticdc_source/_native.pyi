# What the extension module (native/src/lib.rs) exports, for type checkers.
