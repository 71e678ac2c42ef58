//! Files that are not as they should be: the fault names them.
