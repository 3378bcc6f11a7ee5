//! Every operation at every level against plain arithmetic, on ordinary and on hard numbers.
