//! Bytes <-> structs of everything a vault writes.
