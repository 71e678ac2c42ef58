//! Delta tables as sources and as sinks, beside other programs and through kills.

mod kills;
mod shared_tables;
mod sink;
mod source;
