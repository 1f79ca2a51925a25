#![no_main]
use plimsoll_data_fuzz::{CSV, read_bytes};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read_bytes(&CSV, bytes));
